"""Ask an endpoint by OpenAI's own client: URL, MODEL, then prompts.  Prints the texts, streamed and whole, as JSON."""

import json
import sys

from openai import OpenAI

url, model, *prompts = sys.argv[1:]
client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=200)
texts = []
for prompt in prompts:
    asked = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 16, "temperature": 0}
    events = client.chat.completions.create(stream=True, **asked)
    streamed = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    whole = client.chat.completions.create(**asked).choices[0].message.content
    texts.append([streamed, whole])
print(json.dumps({"texts": texts, "models": [each.id for each in client.models.list()]}))
