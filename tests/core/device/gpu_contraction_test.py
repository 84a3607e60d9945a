"""Nothing in the GPU's kernels is contracted to a fused multiply-add, which has other bits.

Usage: gpu_contraction_test.py NVCC SOURCE_DIR FLAG...: the flags that kernels.cu is compiled with.
"""
import re
import subprocess
import sys
import unittest

NVCC, SOURCE, *FLAGS = sys.argv[1:]


def fused(flags):
    """The fused instructions on floating-point numbers that nvcc makes of the kernels."""
    command = [NVCC, "-ptx", "-std=c++20", "-O2", "-arch=compute_90", f"-I{SOURCE}", f"-I{SOURCE}/include", *flags,
               f"{SOURCE}/core/device/cuda/kernels.cu", "-o", "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "norm_of_chunks" in text
    return re.findall(r"\bfma\.\S+", text)


class Contraction(unittest.TestCase):
    def test_contraction_is_off(self):
        self.assertIn("--fmad=false", FLAGS)
        self.assertEqual(fused(FLAGS), [])

    def test_contraction_would_be_detected(self):
        self.assertNotEqual(fused([flag for flag in FLAGS if flag != "--fmad=false"]), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
