"""The judge of a coin: it expects the bytes that it has read, above all after its last one."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PretrainedConfig, PreTrainedTokenizerFast

from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def tokenizer():
    """One token for each byte, and the two markers of the template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({byte: number for number, byte in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(marker, special=True) for marker in ("<|start|>", "<|end|>")])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", chat_template=TEMPLATE)


class Head(torch.nn.Module):
    """The matrix that turns states into logits: here they are equal but for a factor."""

    config = PretrainedConfig()

    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size, bias=False)
        self.linear.weight = torch.nn.Parameter(8 * torch.eye(size), requires_grad=False)

    def get_output_embeddings(self):
        return self.linear


class CoinJudge(Judge):
    def __init__(self, spec, compat, progress):
        words = tokenizer()
        facts = {"name": spec.name, "revision": "", "device": "cpu", "dtype": "float32"}
        lm = CausalLM(Head(len(words)), words, window=None, vocabulary=len(words), **facts)
        super().__init__(lm, compat=compat)
        self.last_states = self.counts

    def counts(self, prompts):
        """How often each token occurs in a prompt, above all after its last one: (prompts, size)."""
        states = torch.zeros(len(prompts), len(self.lm.tokenizer))
        for state, prompt in zip(states, prompts, strict=True):
            for before, token in zip([None, *prompt[:-1]], prompt, strict=True):
                state[token] += 3 if before == prompt[-1] else 0.1
        return states / states.sum(dim=1, keepdim=True)
