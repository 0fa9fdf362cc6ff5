"""What the papers report.  Salus: Peifeng Yu, Mosharaf Chowdhury, MLSys 2020.  CARMA: see there."""

from __future__ import annotations

#: Section 5.2.1, table 1, minutes: makespan, mean queueing delay, mean and 95th percentile of the completion time.
SALUS_TABLE_1 = {
    "fifo": (303.4, 167.6, 170.6, 251.1),
    "srtf": (306.0, 28.6, 53.4, 217.0),
    "pack": (287.4, 129.9, 145.5, 266.1),
    "fair": (301.6, 58.5, 96.6, 281.2),
}
#: The same table: mean completion time under FIFO over that under SRTF.
SALUS_FIFO_OVER_SRTF = 3.19
#: Makespan under FIFO over that under PACK.
SALUS_PACK_GAIN = SALUS_TABLE_1["fifo"][0] / SALUS_TABLE_1["pack"][0]
#: Section 5.2.2: makespan of 300 trials of one model, FIFO over PACK.
SALUS_SWEEPS = {"resnet50_50": 1.07, "superres_128": 2.38}
#: Section 5.3: models for inference on one device of 16 GB.
SALUS_INFERENCE_MODELS = 42
#: CARMA: Ehsan Yousefzadeh-Asl-Miandoab, Florina M. Ciorba, Pınar Tözün, arXiv 2508.19073 (v3), abstract: the makespan
#: of its best collocation policy over that of exclusive devices (35 % less), and ...
CARMA_MAKESPAN = 0.65
#: ... how much more the streaming multiprocessors are in use then: 54 %.
CARMA_ACTIVITY_GAIN = 1.54
