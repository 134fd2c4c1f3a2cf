#!/usr/bin/env python3
"""Makes the table of prices in the program from LiteLLM's list.

usage: make.py LIST DATE VERSION

LIST is model_prices_and_context_window.json, or the copy in the Python package `litellm`; DATE is the day of the list and
VERSION the one of the package. Writes prices.deflate next to this file: a line with the date and the version, then a JSON
object of the chat models of the vendors below with the fields that delta reads, deflated.
"""

import json
import pathlib
import re
import sys
import zlib

VENDORS = (
    "anthropic cerebras dashscope deepseek gemini groq mistral moonshot openai perplexity together_ai xai zai".split()
)
FIELDS = re.compile(
    r"litellm_provider|mode|max_(input|output)_tokens|prompt_cache_min_tokens|tiered_pricing"
    r"|(input_cost_per_token|output_cost_per_token|output_cost_per_reasoning_token|cache_read_input_token_cost"
    r"|cache_creation_input_token_cost(_above_1hr|_above_12hr)?)(_above_\d+k_tokens)?(_priority|_flex|_batches)?"
)


def main(path, date, version):
    models = json.loads(pathlib.Path(path).read_text())
    kept = {
        name: {key: value for key, value in model.items() if FIELDS.fullmatch(key)}
        for name, model in sorted(models.items())
        if model.get("litellm_provider") in VENDORS
        and model.get("mode") in ("chat", "responses")
        and ("input_cost_per_token" in model or "tiered_pricing" in model)
    }
    text = f"{date} {version}\n" + json.dumps(kept, separators=(",", ":"), sort_keys=True)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(text.encode()) + packer.flush()
    target = pathlib.Path(__file__).with_name("prices.deflate")
    target.write_bytes(packed)
    print(f"{len(kept)} models, {len(text)} bytes, {len(packed)} deflated")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
