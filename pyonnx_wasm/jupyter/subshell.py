"""What the shells of ipykernel 7 lose, kept: messages for a subshell that is gone, their order, and requests that arrive during a reply.

JupyterLab sends comm messages to a subshell that all comms of a target share. When a kernel is restarted, the end of the comms of
before deletes the subshell of those that came after (``_closePerCommTargetSubshell`` of ``@jupyterlab/services``: counted by the
kernel's id, which stays), and it goes on naming it. ipykernel drops what is for a subshell that it does not have.
"""

from __future__ import annotations

from typing import Any


def outlive(comm: Any) -> None:
    """Lets messages of a comm go to the shell that they name, to the main shell where it is gone; from ipykernel 7.4 on.

    It sends them to the shell that has written to the comm last, whichever they name (pull request 1565). With two that write, a page's
    messages overtake one another: a hello comes behind the goodbye, and a frame of an answer before the one that it follows.
    """
    kernel = getattr(comm, "kernel", None) or _kernel()
    manager = getattr(getattr(kernel, "shell_channel_thread", None), "manager", None)
    if manager is None or getattr(comm, "_reply_subshell_for", None) is None:
        return
    comm._reply_subshell_for = lambda data, named: named if named is None or named in manager.list_subshell() else None


def reply_through_stream() -> None:
    """Lets ipykernel 7.0 to 7.3 send replies through the stream that reads requests.

    They send on the stream's socket, which takes the wake-up of a request that arrives meanwhile: the kernel then idles with the
    request unread until the next one (ipykernel's pull request 1529, released with 7.4).
    """
    kernel = _kernel()
    manager: Any = getattr(getattr(kernel, "shell_channel_thread", None), "manager", None)
    stream = getattr(kernel, "shell_stream", None)
    if stream is not None and getattr(manager, "_shell_socket", None) is getattr(stream, "socket", manager):
        manager._shell_socket = stream


def _kernel() -> Any:
    import sys

    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython else None, "kernel", None)


__all__ = ["outlive", "reply_through_stream"]
