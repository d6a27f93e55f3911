"""Operators of the domain com.microsoft, one file per family."""
