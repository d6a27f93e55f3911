"""Operators of com.microsoft that are refused: who writes them, and what to do instead."""

from __future__ import annotations

from ...registry import REFUSED
from . import MICROSOFT

ORDERED = "onnxruntime writes it for the memory layouts of cuBLASLt; quantise the model with quantize_static instead"
SPARSE = "onnxruntime's CUDA provider alone has it; export the model with dense attention (GroupQueryAttention)"
SERVED = "onnxruntime's CUDA provider has it for servers of many requests; export the model for generation with GroupQueryAttention"
FLOAT8 = "the genai builder writes it for CUDA; build the model with int4 or int8 weights (MatMulNBits)"
BLOCKS = "it packs block floating point for one accelerator; export the model in float16 or quantise it with quantize_static"

REASONS = {
    "DecoderAttention": "an optimiser of the past wrote it for fairseq; optimise the model with today's onnxruntime, or not at all",
    "DequantizeBFP": BLOCKS,
    "DequantizeWithOrder": ORDERED,
    "DynamicSparseAttention": SPARSE,
    "EPContext": "it holds a binary for one device (QNN, OpenVINO, TensorRT); save the model without ep.context_enable",
    "GatedDeltaNet": "onnxruntime's CUDA provider fuses it; save the model before that, with LinearAttention",
    "GemmFloat8": "onnxruntime's CUDA provider alone has it; export the model in float16",
    "LongformerAttention": "onnxruntime's optimiser writes it for Longformer on CUDA; export the model without that fusion",
    "MatMulBlockQuantizedFp4Weight": FLOAT8,
    "MatMulBlockQuantizedFp8Weight": FLOAT8,
    "MatMulFpQ4": "its weights lie as one version of onnxruntime packs them; quantise the model with MatMulNBits instead",
    "PackedSparseAttentionIndexer": SPARSE,
    "PagedAttention": SERVED,
    "QOrderedAttention": ORDERED,
    "QOrderedGelu": ORDERED,
    "QOrderedLayerNormalization": ORDERED,
    "QOrderedLongformerAttention": ORDERED,
    "QOrderedMatMul": ORDERED,
    "QuantizeBFP": BLOCKS,
    "QuantizeWithOrder": ORDERED,
    "Snpe": "it holds a binary for Qualcomm's SNPE; export the model without it",
    "SparseAttentionIndexer": SPARSE,
    "SparsePagedAttention": SPARSE,
    "VarlenCausalConvWithState": SERVED,
}
REFUSED.update({(MICROSOFT, name): reason for name, reason in REASONS.items()})
