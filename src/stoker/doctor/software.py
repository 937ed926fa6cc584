"""What is installed, and whether torch can compute on this machine's GPU."""

import importlib.metadata
import warnings

from stoker.doctor.trials import first_line
from stoker.findings import TorchReport

PACKAGES = ("stoker", "torchvision", "timm", "numpy", "pillow", "safetensors")


def torch_report() -> TorchReport:
    """What torch says of itself; on a GPU, a small computation is tried."""
    # Warnings are caught because torch tells that way why it cannot reach the GPU, and to keep the answer in our words.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import torch
        except Exception as error:  # a broken install fails with anything: ImportError, OSError of a library, ...
            return TorchReport(trouble=first_line(error))
        try:
            cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        except RuntimeError:  # another cuDNN than torch's was loaded; the computation below says so
            cudnn = None
        failure = _cuda_failure() if (available := torch.cuda.is_available()) else None
    trouble = failure or next((first_line(w.message) for w in caught if "CUDA" in str(w.message)), None)
    return TorchReport(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        cudnn=f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else None,
        cuda_works=failure is None if available else None,
        trouble=trouble or TorchReport.trouble,
    )


def _cuda_failure() -> str | None:
    """What goes wrong in a matrix product and a convolution on the first GPU, or None."""
    import torch

    try:
        square = torch.ones(64, 64, device="cuda")
        product = (square @ square).sum().item()
        kernel = torch.ones(4, 3, 3, 3, device="cuda")
        convolved = torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8, device="cuda"), kernel).sum().item()
    except Exception as error:
        return first_line(error)
    # Sums of ones are exact in every float format used here, so anything else is a broken GPU or library.
    right = (product, convolved) == (64**3, 27 * 4 * 6 * 6)
    return None if right else f"wrong numbers: {product} and {convolved} instead of {64**3} and {27 * 4 * 6 * 6}"


def package_version(name: str) -> str | None:
    """The version of an installed package; None where it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
