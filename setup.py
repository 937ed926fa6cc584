"""Builds the native decoder with the package. Without a compiler or libjpeg-turbo it is left out: Pillow decodes."""

import platform

from setuptools import Extension, setup

NATIVE = "src/stoker/data/native"
FLAGS = ["-O3", "-std=c++17", "-ffp-contract=off", "-fvisibility=hidden"]
VECTORS = ["-mssse3"] if platform.machine() in ("x86_64", "AMD64") else []

setup(
    ext_modules=[
        Extension(
            "stoker.data.native.library",
            sources=[f"{NATIVE}/engine.cpp"],
            depends=[f"{NATIVE}/{name}.h" for name in ("crop", "files", "huffman", "picture", "resample", "table")],
            libraries=["jpeg", "pthread"],
            extra_compile_args=[*FLAGS, *VECTORS],
            language="c++",
            optional=True,
            py_limited_api=True,
        )
    ]
)
