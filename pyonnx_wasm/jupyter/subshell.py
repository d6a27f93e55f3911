"""Keeps a widget's messages from going to a subshell that is gone.

JupyterLab sends comm messages to a subshell that all comms of a target share. When a kernel is restarted, the end of the comms of
before deletes the subshell of those that came after (``_closePerCommTargetSubshell`` of ``@jupyterlab/services``: counted by the
kernel's id, which stays), and it goes on naming it. ipykernel drops what is for a subshell that it does not have.
"""

from __future__ import annotations

from typing import Any


def outlive(comm: Any) -> None:
    """Lets the main shell take messages of a comm whose subshell is gone; from ipykernel 7.4 on, which chooses the shell by the comm."""
    kernel = getattr(comm, "kernel", None) or _kernel()
    manager = getattr(getattr(kernel, "shell_channel_thread", None), "manager", None)
    route = getattr(comm, "_reply_subshell_for", None)
    if manager is None or route is None:
        return

    def living(data: Any, default: str | None) -> str | None:
        chosen: str | None = route(data, default)
        return chosen if chosen is None or chosen in manager.list_subshell() else None

    comm._reply_subshell_for = living


def _kernel() -> Any:
    import sys

    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython else None, "kernel", None)


__all__ = ["outlive"]
