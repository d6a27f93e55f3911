"""The JupyterLab viewer of models: what the Jupyter server tells it. Needs Jupyter, nothing else of it."""
