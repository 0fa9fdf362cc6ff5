"""Inference services: the user's own server, which answers requests for models (`docs/inference.md`).

There are three kinds of processes.  The *front* (`__main__`, `server`, `front` and the rooms `http`, `queue`, `pool`)
has the socket and the queues and loads no framework.  A *worker* (`worker`) is a Carpool job that computes; a
*preparer* (`prepare`) builds and measures a model once.  Both run in the model's interpreter, and so import the
standard library, PyTorch and safetensors only.  The rooms, from top to bottom, each importing only those below: `http`,
`queue`, `pool`, `prepare`, `model`, `wire`, `plan`, `oip`; `metrics` is below `queue`.  `client` is for users'
programs, and stands beside them.
"""
