# SPDX-License-Identifier: Apache-2.0
"""Writes a model's folder as ckpt.pt, from which nanoGPT's train.py resumes at step 0."""
import argparse
import json
import struct

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model")
parser.add_argument("out")
parser.add_argument("--beta2", type=float, required=True)
parser.add_argument("--decay", type=float, required=True)
a = parser.parse_args()

config = json.load(open(a.model + "/config.json"))
with open(a.model + "/model.safetensors", "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
header.pop("__metadata__", None)
state = {}
for name, t in header.items():
    tensor = torch.frombuffer(bytearray(data[slice(*t["data_offsets"])]), dtype=torch.float32).view(t["shape"])
    # Its dense layers hold [out, in], the published files [in, out].
    is_dense = name.startswith("h.") and tensor.dim() == 2
    state["transformer." + name] = tensor.t().contiguous() if is_dense else tensor
state["lm_head.weight"] = state["transformer.wte.weight"]

# A fresh optimizer over as many tensors as nanoGPT has in its two groups.
decayed = 2 + 4 * config["n_layer"]
groups = [{"params": [torch.nn.Parameter(torch.zeros(1)) for _ in range(n)], "weight_decay": decay}
          for n, decay in ((decayed, a.decay), (len(header) - decayed, 0.0))]
optimizer = torch.optim.AdamW(groups, betas=(0.9, a.beta2), eps=1e-8)
torch.save({"model": state, "optimizer": optimizer.state_dict(), "iter_num": 0, "best_val_loss": 1e9, "config": {},
            "model_args": {"n_layer": config["n_layer"], "n_head": config["n_head"], "n_embd": config["n_embd"],
                           "block_size": config["n_positions"], "bias": True, "vocab_size": config["vocab_size"],
                           "dropout": 0.0}}, a.out)
