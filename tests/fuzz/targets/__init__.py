"""What is fed with the bytes of others: one function for each surface.

A target takes any bytes.  It raises nothing: the errors that its surface documents are caught there, whatever else
comes is a finding.  What a surface accepts comes back as it was where there is an encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz.targets import endpoint, job_files, messages, seats, texts


class Target(NamedTuple):
    """``words``: pieces that mean something to it."""

    check: Callable[[bytes], None]
    words: tuple[bytes, ...] = ()


TARGETS = {
    "packet": Target(messages.packet),
    "session": Target(messages.session, (b'"type":"register"', b'"kept":["a"]', b'"more":true')),
    "submission": Target(messages.submission, (b'"argv":["a"]', b'"gpus":', b'"env":{"":""}')),
    "seat": Target(seats.words),
    "ledger": Target(seats.ledger, (b'"over":true', b'"kept":{"a":[1,2]}', b"\n")),
    "exit_record": Target(job_files.exit_record, (b'"code":', b'"seat":"', b'"text":"x"')),
    "limits": Target(job_files.limits, (b"jobs = ", b'job_log = "1KiB"', b"[x]")),
    "job_file": Target(job_files.job_file, (b"[[job]]", b'command = ["a"]', b"[defaults]", b"[sweep]")),
    "predictions": Target(job_files.predictions, (b'"since_us":', b'"jobs":1', b'"mean_error":1e308', b"\n")),
    "trace": Target(texts.trace, (b"job_id,submit_s", b"estimate_x_mib", b"1e-9", b"\n1,1,1,1")),
    "services": Target(texts.services, (b"[[model]]", b"rate = ", b"arrivals_s = [1]")),
    "tensors": Target(endpoint.tensors, (b'"binary_data_size":', b'"shape":[1,2]', b'"datatype":"BYTES"')),
    "model": Target(
        endpoint.model,
        (b"\0--b\r\n", b"Content-Disposition: form-data; name=model\r\n\r\n", b"\r\n--b", b'\xff{"model":""}'),
    ),
    "body": Target(endpoint.body),
    "http": Target(
        endpoint.request, (b"Transfer-Encoding: chunked\r\n", b"Content-Length: ", b"Expect: 100-continue\r\n")
    ),
}
