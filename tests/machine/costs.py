"""Costs and jobs for tests of the model of a step."""

from typing import Any

from stoker.machine.predict import Costs, Job


def costs(**given: Any) -> Costs:
    """A GPU that takes a millisecond a sample, and nothing else, unless told."""
    nothing: dict[str, Any] = {
        "device": "cuda", "atom_seconds": 0.0, "sample_seconds": 0.001, "compute_threads": 1, "optimizer_seconds": 0.0,
        "transfer_sample_seconds": 0.0, "decode_sample_seconds": 0.0, "read_sample_seconds": 0.0, "host_seconds": 0.0,
        "gradient_bytes": 0,
    }  # fmt: skip
    return Costs(**nothing | given)


def job(**given: Any) -> Job:
    """Steps of 100 samples by one process with eight cores, unless told."""
    alone: dict[str, Any] = {
        "batch": 100, "atoms": 1, "world": 1, "local_world": 1, "threads": 4, "compute_threads": 1, "cores": 8,
    }  # fmt: skip
    return Job(**alone | given)
