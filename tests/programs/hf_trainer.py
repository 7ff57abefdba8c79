import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from witness import note


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        tokens = torch.arange(8)
        return {"input_ids": tokens, "labels": tokens}


class Notes(TrainerCallback):
    def on_pre_optimizer_step(self, *args, **kwargs):
        note("clip")

    def on_step_end(self, *args, **kwargs):
        note("after_step")


model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=2, n_head=2))
model.register_forward_hook(lambda m, *_: note("forward" if m.training else "eval"))
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    max_steps=4,
    eval_strategy="steps",
    eval_steps=2,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    model, arguments, train_dataset=Dataset(), eval_dataset=Dataset(), callbacks=[Notes()]
)
trainer.train()
