"""tbd"""


def page(report):
    return ""
