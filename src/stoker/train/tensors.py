"""Tensors as the bytes of a safetensors file, copied once: from where they are straight to their place in it.

safetensors' own `save` copies twice and holds the interpreter's lock all the while (170 ms for 100 MB), which would
stand still the thread that trains. Copies of torch, hashes and writes let go of it.
"""

import json

import torch

# https://github.com/huggingface/safetensors#format
KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def packed(tensors: dict[str, torch.Tensor]) -> memoryview:
    """Tensors, on whatever device, as a safetensors file in main memory. It shares nothing with them."""
    # The widest first: then each begins at a multiple of its width, which is what makes it a view of the file.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    text = len(text).to_bytes(8, "little") + text

    # Pinned memory is slow to get and fast to copy to; torch keeps it for the next time.
    on_gpu = [tensor.device for tensor in tensors.values() if tensor.is_cuda]
    file = torch.empty(len(text) + end, dtype=torch.uint8, pin_memory=bool(on_gpu))
    file[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    end = len(text)
    for _, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        file[begin:end].view(tensor.dtype).view(tensor.shape).copy_(tensor.detach(), non_blocking=True)
    if on_gpu:
        torch.cuda.current_stream(on_gpu[0]).synchronize()
    return file.numpy().data
