"""What holds for every test."""

from hypothesis import settings

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
