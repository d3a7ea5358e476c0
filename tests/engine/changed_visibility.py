"""A module whose import changes CUDA_VISIBLE_DEVICES of its process, as some libraries do."""

from __future__ import annotations

import os

import roost

if "RANK" in os.environ:  # in a worker only
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"


class ChangesVisibility(roost.Worker):
    pass
