"""The recipes of `docs/guides/batch.md` on Dask, Ray Data and Spark themselves, each from PyPI in an environment of its own.

`python -m tests.batch [dask] [ray] [spark]` runs each recipe as it is printed, on one worker process and on two, and once more with a
worker that is killed in the middle of a batch: no row may be lost, every process may have one session and be given the model once. It tells
how many rows a second go through. The environments take minutes and some GB, so this is a command and no part of the suite. Spark needs
Java (Debian: default-jre-headless).
"""
