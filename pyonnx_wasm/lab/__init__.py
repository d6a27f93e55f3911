"""The JupyterLab viewer of models: what the Jupyter server tells it. Needs Jupyter, nothing else of it.

``server`` imports Jupyter and ``worker`` alone; what may take long or crash runs in the worker's process, which may import
everything below. A question of the viewer is added as a method in ``worker``, a handler in ``server`` and a call in ``js/lab``.
"""
