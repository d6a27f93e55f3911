"""The file as it is: protobuf, graphs, tensors, functions. It knows no operator, and imports ``dtypes`` alone."""
