# The model of step.c with PyTorch, as people would write it there: torch_step.py MODE THREADS STEPS BATCH SEQUENCE; MODE is eager or
# compile, with -bf16 behind it for bf16 autocast. Prints the same figures as step.c.
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

mode, threads, steps, batch, sequence = sys.argv[1], *map(int, sys.argv[2:6])
HIDDEN, LAYERS, HEADS, KV, FFN, VOCABULARY, WIDTH = 512, 8, 8, 4, 1408, 32000, 64
if threads:
    torch.set_num_threads(threads)
torch.manual_seed(1)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, 1e-5), nn.RMSNorm(HIDDEN, 1e-5)
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV) * WIDTH, bias=False)
        self.o = nn.Linear(HEADS * WIDTH, HIDDEN, bias=False)
        self.gate_up, self.down = nn.Linear(HIDDEN, 2 * FFN, bias=False), nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split((HEADS * WIDTH, KV * WIDTH, KV * WIDTH), -1)
        q, k, v = (y.view(b, t, -1, WIDTH).transpose(1, 2) for y in (q, k, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN, 1e-5), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(sequence), 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY).float(), targets.view(-1))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model) if mode.startswith("compile") else model
index = torch.arange(batch * sequence)
ids = (index * 2654435761 % (1 << 32) % VOCABULARY).view(batch, sequence)
targets = ((index + 1) * 2654435761 % (1 << 32) % VOCABULARY).view(batch, sequence)


def step():
    began, cpu = time.perf_counter(), time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=mode.endswith("bf16")):
        loss = run(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return time.perf_counter() - began, time.process_time() - cpu, loss.item()


step()
taken = [step() for _ in range(steps)]
wall, cpu = (sorted(t[i] for t in taken)[steps // 2] for i in (0, 1))
print(f"torch: {torch.__version__} {mode}, {torch.get_num_threads()} threads, {batch} x {sequence} tokens, loss {taken[-1][2]:.4f}")
print(f"torch.tokens_per_second {batch * sequence / wall:.1f} tokens/s")
print(f"torch.tokens_per_cpu_second {batch * sequence / cpu:.1f} tokens/s")
print(f"torch.peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
