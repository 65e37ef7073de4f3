"""What of this process's environment a server gets that is a process of this machine.

Only what a program needs to run, to find its devices, its models and the network: a shell holds
keys of other services, and settings of the server that no experiment asked for. Everything else
goes by name, in `server.env`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tgi_bench.engines.engine import is_secret_name

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"})
"""In whatever case."""

_NAMES = frozenset(
    {
        # The user and the shell.
        *("HOME", "HOSTNAME", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TZ", "USER"),
        *("LANG", "LANGUAGE", "NO_COLOR", "TMPDIR", "TEMP", "TMP"),
        # Libraries, and where to find them.
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "VIRTUAL_ENV"),
        # Certificates.
        *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    }
)
_BEGINNINGS = (
    "LC_",
    "XDG_",
    # Interpreters.
    *("CONDA_", "MAMBA_", "PYENV_", "PYTHON"),
    # Devices: NVIDIA, AMD, Intel, Gaudi, Neuron.
    *("CUBLAS_", "CUDA_", "CUDNN_", "NCCL_", "NVIDIA_"),
    *("GPU_DEVICE_", "HIP_", "HSA_", "MIOPEN_", "RCCL_", "ROCM_", "ROCR_"),
    *("HABANA_", "NEURON_", "ONEAPI_", "PT_HPU_", "SYCL_", "ZE_"),
    # Threads and memory.
    *("GOMP_", "KMP_", "MALLOC_", "MKL_", "NUMBA_", "NUMEXPR_", "OMP_", "OPENBLAS_"),
    *("PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "TRITON_"),
    # Models of the Hub.
    *("HF_", "HUGGINGFACE_HUB_", "SAFETENSORS_", "TOKENIZERS_", "TRANSFORMERS_"),
)
_SECRET = re.compile(r"SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def needed(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server needs, without any whose name is one of a secret."""
    return {name: value for name, value in environ.items() if _is_needed(name)}


def _is_needed(name: str) -> bool:
    if name.lower() in PROXIES or name in _NAMES:
        return True
    secret = is_secret_name(name.removesuffix("_PATH")) or _SECRET.search(name)
    return name.startswith(_BEGINNINGS) and not secret
