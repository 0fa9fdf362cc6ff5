"""Inference services: the user's own server, which answers requests for models (`docs/inference.md`).

The *front* (`__main__`, `server`, `front` and the rooms `engines`, `http`, `queue`, `pool`)
has the socket and the queues and loads no framework.  A *worker* (`worker`) is a Carpool job that computes; a
*preparer* (`prepare`) builds and measures a model once.  Both run in the model's interpreter, and so import the
standard library, PyTorch and safetensors only.  An *engine* is a language-model server of its own, such as vLLM: the
front starts it as a job and passes requests on to it (`engines`, `docs/engines.md`).

The rooms, from top to bottom, each importing only those below: `engines`, `http`, `queue`, `pool`, `prepare`, `model`,
`wire`, `plan`, `oip`; `metrics` is below `queue`.  `client` is for users' programs, and stands beside them.
"""
