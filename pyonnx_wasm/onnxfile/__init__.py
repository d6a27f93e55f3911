"""The file as it is: protobuf, graphs, tensors, functions. It knows no operator, and imports ``dtypes`` alone.

Everything in a file is untrusted: what does not fit is a ``ReadError`` that says where. A field of ONNX is added in ``reader``, which
names it once, and in the class that holds it.
"""
