"""Operators of the domain com.microsoft, one file per family.

They import what ``ops`` imports, and ``ops`` itself. An operator is added as a function with ``@op(domain="com.microsoft")``.
"""
