"""onnxruntime's execution providers: which device the graphs run on.

    auto   CUDA if it works, otherwise the CPU with a warning in the log
    cpu    the CPU
    cuda   CUDA, or an error

An onnxruntime with CUDA may still lack a driver or a library. It then opens a session on the CPU
without an error, so the code asks each session for its provider.

onnxruntime is imported when the first session is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from localmoments.errors import SettingsError

if TYPE_CHECKING:
    import onnxruntime as ort

log = logging.getLogger(__name__)

Choice = Literal["auto", "cpu", "cuda"]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
MEMORY = {CPU: "cpu", CUDA: "cuda"}  # where a provider's tensors lie
OPTIONS = {CPU: {}, CUDA: {"use_tf32": "0"}}  # all 24 bits in products, as on the CPU


@dataclass(frozen=True)
class Device:
    """A provider, and whether the CPU may replace it."""

    provider: str = CPU
    only: bool = True


def choose_device(choice: Choice, available: Sequence[str]) -> Device:
    """Return the device for a setting, given the providers that onnxruntime was built with.

    Raises:
        SettingsError: CUDA is required and missing.
    """
    if choice == "cpu" or (choice == "auto" and CUDA not in available):
        return Device(CPU)
    if CUDA not in available:
        raise SettingsError(
            "LOCALMOMENTS_PROVIDER is 'cuda', but this onnxruntime was built without CUDA: install "
            "the extra 'gpu' instead of 'cpu', use the gpu image, or set it to 'auto'."
        )
    return Device(CUDA, only=choice == "cuda")


def open_session(path: Path, threads: int, device: Device) -> ort.InferenceSession:
    """Open a session on the device, or on the CPU if the device fails and is not required."""
    try:
        session = _make_session(path, threads, device.provider)
        if session.get_providers()[0] == device.provider:
            return session
        reason = "a library or the driver is missing, or of another version"
    except Exception as error:  # onnxruntime raises its own untyped family
        if device.only:
            raise
        reason = str(error)
    if device.only:
        raise RuntimeError(f"{device.provider} does not work here: {reason}.")
    log.warning("%s does not work here, %s runs on the CPU: %s", device.provider, path, reason)
    return _make_session(path, threads, CPU)


def _make_session(path: Path, threads: int, provider: str) -> ort.InferenceSession:
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin while waiting for the next pass use 16 of the 50 ms after a pass, which the
    # event loop and other processes need (docs/decisions/0008-tangents.md).
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = [(provider, OPTIONS[provider])]
    if provider != CPU:
        providers.append((CPU, OPTIONS[CPU]))  # for an operator that the first does not have
    return ort.InferenceSession(str(path), options, providers=providers, enable_fallback=0)


def import_onnxruntime() -> Any:
    """Import onnxruntime, or raise ImportError that says how to install it."""
    try:
        import onnxruntime
    except ImportError:
        raise ImportError(
            "onnxruntime is not installed: pip install 'localmoments[cpu]', or [gpu] for CUDA."
        ) from None
    return onnxruntime


def run_on_device(
    session: ort.InferenceSession,
    outputs: Sequence[str],
    inputs: Mapping[str, NDArray[np.float32]],
    memory: str,
) -> list[Any]:
    """Run one pass: copy the inputs to the device, run, copy the outputs back."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    for name in outputs:
        binding.bind_output(name, memory)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    return list(binding.copy_outputs_to_cpu())
