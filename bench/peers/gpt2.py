# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in PyTorch, trained on one batch: a JSON line with loss and seconds for each step."""
import argparse
import json
import struct
import time

import numpy
import torch
import torch.nn.functional as F


def read_weights(path):
    """The tensors of a safetensors file, all of them F32, by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: torch.nn.Parameter(torch.frombuffer(
                bytearray(data[slice(*t["data_offsets"])]), dtype=torch.float32).view(t["shape"]))
            for name, t in header.items()}


def loss_of(w, config, inputs, targets):
    B, T = inputs.shape
    C, H = config["n_embd"], config["n_head"]
    norm = lambda x, name: F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"],
                                        config["layer_norm_epsilon"])
    dense = lambda x, name: torch.addmm(w[name + ".bias"], x, w[name + ".weight"])
    x = (F.embedding(inputs, w["wte.weight"]) + w["wpe.weight"][:T]).view(B * T, C)
    for layer in range(config["n_layer"]):
        h = f"h.{layer}."
        q, k, v = dense(norm(x, h + "ln_1"), h + "attn.c_attn").view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B * T, C)
        x = x + dense(y, h + "attn.c_proj")
        y = F.gelu(dense(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + dense(y, h + "mlp.c_proj")
    return F.cross_entropy(norm(x, "ln_f") @ w["wte.weight"].t(), targets.view(-1))


parser = argparse.ArgumentParser(description=__doc__)
for name, kind in dict(model=str, tokens=str, batch=int, seq_length=int, steps=int, threads=int, lr=float,
                       beta2=float, decay=float, clip=float).items():
    parser.add_argument("--" + name.replace("_", "-"), type=kind, required=True)
parser.add_argument("--compile", action="store_true")
a = parser.parse_args()
torch.set_num_threads(a.threads)
w = read_weights(a.model + "/model.safetensors")
config = json.load(open(a.model + "/config.json"))
tokens = torch.from_numpy(numpy.fromfile(a.tokens, dtype=numpy.uint16).astype(numpy.int64))
inputs, targets = tokens[:-1].view(a.batch, a.seq_length), tokens[1:].view(a.batch, a.seq_length)
optimizer = torch.optim.AdamW([{"params": [p for p in w.values() if p.dim() == 2], "weight_decay": a.decay},
                               {"params": [p for p in w.values() if p.dim() != 2], "weight_decay": 0.0}],
                              lr=a.lr, betas=(0.9, a.beta2), eps=1e-8, fused=True)
compute = torch.compile(loss_of) if a.compile else loss_of
for step in range(a.steps):
    began = time.perf_counter()
    loss = compute(w, config, inputs, targets)
    loss.backward()
    if a.clip > 0:
        torch.nn.utils.clip_grad_norm_(w.values(), a.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(json.dumps({"loss": loss.item(), "step_seconds": time.perf_counter() - began}), flush=True)
