"""Programs of JAX that the tools compile, record and measure, in one package.

- `parts` has what they are made of: shapes, layers, losses, optimizers.
- `models` has the networks, which are written once and compiled at several sizes.
- `small` has the programs orders are measured with, `subjects` all that they are measured with;
  `fitted` and `large` have the same models at other sizes, and steps of training around them.
- `production` lists programs as they run in production: `on_one` device, `on_all` of a host.
- `sparse_core` and `passes` have small programs, each of which shows a rule.
- `carried` compiles a program of which only XLA's text is there.
- `scripts` are programs as users write them, with options that change one thing each. Every script
  stands alone, since dumps and advice name its lines.
"""
