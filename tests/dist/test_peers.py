"""Errors about other processes are told apart from those of this one."""

import pytest
import torch
import torch.distributed

from stoker import dist
from stoker.dist import PeerLost

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/"


@pytest.mark.parametrize(
    "error",
    [
        PeerLost("Connection closed by peer"),
        RuntimeError(f"{GLOO}pair.cc:547] Connection closed by peer [127.0.1.1]:2"),
        RuntimeError(f"{GLOO}pair.cc:544] Read error [127.0.0.1]:1: Connection reset by peer"),
        RuntimeError(f"{GLOO}unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
        torch.distributed.DistBackendError(
            "NCCL error in: x.cpp:3, remote process exited or there was a network error"
        ),
        torch.distributed.DistBackendError("NCCL communicator was aborted on rank 0."),
        torch.distributed.DistNetworkError("The client socket has failed to connect"),
        torch.distributed.DistStoreError("wait timeout after 3000ms, keys: /default_pg/0//x"),
    ],
)
def test_the_loss_of_a_process_is_told_with_what_to_do(error: Exception) -> None:
    problem = dist.told(error)
    assert problem is not None
    assert problem.what.startswith("another process is gone: ")
    assert "] " not in problem.what and problem.what.removeprefix("another process is gone: ") in str(error)
    assert "start the same command again" in problem.fix


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        RuntimeError("a loader's thread timed out"),
        ConnectionResetError("Connection reset by peer"),
        torch.distributed.DistBackendError("NCCL error: ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1"),
        torch.distributed.DistBackendError("NCCL error: ncclUnhandledCudaError: out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_any_other_error_is_left_alone(error: BaseException) -> None:
    assert dist.told(error) is None
