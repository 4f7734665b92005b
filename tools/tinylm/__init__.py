"""The making of the embedded model: ``corpus`` writes the training text, ``train`` fits the weights (needs
PyTorch).

``derive_words`` makes the word list, ``tokenizer`` the vocabulary, and ``evaluate`` measures the shipped
model. What runs the model in the application is ``engine.generation.tinylm``. See ``docs/embedded-model.md``.
"""
