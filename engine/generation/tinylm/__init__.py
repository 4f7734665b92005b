"""A small Llama-architecture language model that this repository trains, ships and runs on the CPU.

``runtime`` runs the weights with NumPy alone. ``conversation`` has the marks around messages, ``words`` the
word list and the block list, and ``tasks`` the puzzles that the demo asks. ``tools.tinylm`` makes and
measures the model. See ``docs/embedded-model.md``.
"""

from pathlib import Path

MODEL_NAME = "tinylm-1"
MODEL_FOLDER = Path(__file__).parent / "model"
