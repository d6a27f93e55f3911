"""What executes Programs: the C++ core in this process."""
