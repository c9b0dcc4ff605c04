#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a debug-10m in PyTorch eager: the peer of bench_training_step (scripts/bench_eager runs both).

    eager_loop.py [STEPS [BATCH [SEQ_LEN]]]     prints median milliseconds per step and tokens per second

Same structure, sizes, windows' shape and update as the project's model: grouped-query attention with norms on q and k,
SwiGLU, tied head, cross-entropy over all positions, clipping at 1, AdamW (fused) with decay on matrices. Threads and the
waiting policy come from the environment.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 320, 8, 10, 2, 32, 1024, 512


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        def linear(rows, columns):
            return torch.nn.Linear(columns, rows, bias=False)
        self.q, self.k, self.v = (linear(n * HEAD_DIM, HIDDEN) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.o = linear(HIDDEN, HEADS * HEAD_DIM)
        self.gate, self.up, self.down = linear(FFN, HIDDEN), linear(FFN, HIDDEN), linear(HIDDEN, FFN)
        self.before, self.after = torch.nn.RMSNorm(HIDDEN, 1e-6), torch.nn.RMSNorm(HIDDEN, 1e-6)
        self.q_norm, self.k_norm = torch.nn.RMSNorm(HEAD_DIM, 1e-6), torch.nn.RMSNorm(HEAD_DIM, 1e-6)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape

        def rotate(h):
            low, high = h.chunk(2, -1)
            return h * cos + torch.cat((-high, low), -1) * sin

        h = self.before(x)
        q = rotate(self.q_norm(self.q(h).view(b, t, HEADS, HEAD_DIM)).transpose(1, 2))
        k = rotate(self.k_norm(self.k(h).view(b, t, KV_HEADS, HEAD_DIM)).transpose(1, 2))
        v = self.v(h).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, 1) for y in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(b, t, HEADS * HEAD_DIM))
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(torch.nn.Module):
    def __init__(self, seq_len):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN, 1e-6)
        for p in self.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.02)
        angles = torch.outer(torch.arange(seq_len), 1e6 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        both = torch.cat((angles, angles), 1)
        self.cos, self.sin = both.cos(), both.sin()

    def loss(self, windows):
        x = self.embedding(windows[:, :-1])
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def main():
    steps, batch, seq_len = (int(a) for a in (sys.argv[1:] + ["15", "4", "256"][len(sys.argv) - 1:])[:3])
    torch.manual_seed(1)
    model = Decoder(seq_len)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                              lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    windows = torch.randint(0, 256, (batch, seq_len + 1))
    times, processor = [], []
    for _ in range(steps + 2):  # two to warm up
        begun, used = time.perf_counter(), time.process_time()
        adamw.zero_grad()
        loss = model.loss(windows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        loss.item()
        times.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
    median = statistics.median(times[2:])
    parameters = sum(p.numel() for p in model.parameters())
    print(f"PyTorch {torch.__version__} eager, {parameters} parameters, {torch.get_num_threads()} threads: "
          f"{1e3 * statistics.median(processor[2:]):.1f} ms of processors, {1e3 * median:.1f} ms, {batch * seq_len / median:.0f} tokens/s")


if __name__ == "__main__":
    main()
