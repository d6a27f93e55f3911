"""The widgets in other homes than JupyterLab: Notebook 7, Voila, marimo, each in a browser. `python -m tests.homes [HOME...]`

They are installed into an environment of their own, `build/homes`: they ask for other versions of what JupyterLab needs.
"""
