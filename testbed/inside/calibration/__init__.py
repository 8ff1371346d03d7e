"""Measurements of each direction of each link without Tor; `results.calibration` judges them."""
