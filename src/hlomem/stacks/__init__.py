"""Factories for the stacks people train with: their own step, lowered, with nothing of them edited.

    hlomem fit hlomem.stacks.maxtext:train_step --target tpu-v5e:16 --set model_name=llama2-7b \\
        --max per_device_batch_size --over remat_policy=full,minimal

Each module here is named by the stack it imports, when it is called.
"""
