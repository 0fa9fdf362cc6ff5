"""Commands started in every iteration, by every way that Python has."""

import os
import subprocess

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
answers = []
for step in range(40):
    optimizer.zero_grad()
    loss = loss_of(model, data[step % len(data)])
    if step % 4 == 0:
        answers.append(subprocess.run(["/bin/echo", str(step)], capture_output=True, text=True, check=True).stdout)
    loss.backward()
    if step % 4 == 1:  # a function before exec makes subprocess fork
        done = subprocess.run(["/bin/echo", "f"], capture_output=True, check=True, preexec_fn=lambda: None)
        answers.append(done.stdout.decode())
    optimizer.step()
    if step % 4 == 2:
        answers.append(str(os.system("exit 3")))
    if step % 4 == 3:
        pid = os.posix_spawn("/bin/true", ["true"], os.environ)
        answers.append(str(os.waitpid(pid, 0)[1]))
finish(out, weights=weights(model), answers=answers)
