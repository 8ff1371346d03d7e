"""Carrying out plans: single runs, a comparison's runs, a run made again, and a run's cost."""
