"""What the graphs run on: CUDA where onnxruntime has it, the CPU else; chosen once, at the start.

    auto   CUDA if it is there and works, else the CPU, which is said in the log
    cpu    the CPU
    cuda   CUDA or nothing

That onnxruntime was built with CUDA says little: a driver or a library may be missing, and it then
opens a session on the CPU without an error. So what a session runs on is asked from the session.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from localmoments.errors import SettingsError

log = logging.getLogger(__name__)

Choice = Literal["auto", "cpu", "cuda"]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
MEMORY = {CPU: "cpu", CUDA: "cuda"}  # where a provider's tensors lie
OPTIONS = {CPU: {}, CUDA: {"use_tf32": "0"}}  # all 24 bits in products, as on the CPU


@dataclass(frozen=True)
class Device:
    """A provider, and whether another one may stand in for it."""

    provider: str = CPU
    only: bool = True


def chosen(asked: Choice, available: Sequence[str]) -> Device:
    """The device for this word, among the providers that onnxruntime was built with."""
    if asked == "cpu" or (asked == "auto" and CUDA not in available):
        return Device(CPU)
    if CUDA not in available:
        raise SettingsError(
            "LOCALMOMENTS_PROVIDER is 'cuda', but this onnxruntime was built without CUDA: install "
            "the extra 'gpu' in place of 'cpu', or take the gpu image, or set it to 'auto'."
        )
    return Device(CUDA, only=asked == "cuda")


def open_session(path: Path, threads: int, device: Device) -> ort.InferenceSession:
    """A session on the device, or on the CPU where the device allows that and fails."""
    try:
        session = _session(path, threads, device.provider)
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
    return _session(path, threads, CPU)


def _session(path: Path, threads: int, provider: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin for the next pass burnt 16 of the 50 ms after each, which the event loop
    # and other processes need (docs/decisions/0008-tangents.md).
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = [(provider, OPTIONS[provider])]
    if provider != CPU:
        providers.append((CPU, OPTIONS[CPU]))  # for an operator that the first does not have
    return ort.InferenceSession(str(path), options, providers=providers, enable_fallback=0)


def bound_run(
    session: ort.InferenceSession,
    outputs: Sequence[str],
    inputs: Mapping[str, NDArray[np.float32]],
    memory: str,
) -> list[Any]:
    """One pass, with inputs copied to the device before it and outputs fetched after it."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    for name in outputs:
        binding.bind_output(name, memory)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    return list(binding.copy_outputs_to_cpu())
