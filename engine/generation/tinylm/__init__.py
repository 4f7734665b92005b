"""A small Llama-architecture language model that this repository trains, ships and runs on the CPU.

``tasks`` draws the puzzles, ``corpus`` writes the training text, ``train`` fits the weights (needs PyTorch),
``runtime`` runs them with NumPy alone, ``evaluate`` measures them. See ``docs/embedded-model.md``.
"""

from pathlib import Path

MODEL_NAME = "tinylm-1"
MODEL_FOLDER = Path(__file__).parent / "model"
