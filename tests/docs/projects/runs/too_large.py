import jax
from train import step

import hlomem.jax

where = jax.sharding.SingleDeviceSharding(hlomem.jax.devices("tpu-v5e:1x1")[0])


def array(*shape):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=where)


params = {"layers": array(48, 4096, 4096), "head": array(4096, 1000)}
step.lower(params, params, array(10240, 4096), array(10240, 1000)).compile()
