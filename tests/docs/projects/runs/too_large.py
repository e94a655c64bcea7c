import jax
import jax.numpy as jnp

import hlomem.jax


def layer(h, w):
    return jnp.tanh(h @ w), None


def loss(params, x, y):
    h, _ = jax.lax.scan(layer, x, params["layers"])
    return jnp.mean((h @ params["head"] - y) ** 2)


def train_step(params, opt_state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, grads)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, params, opt_state)
    return params, opt_state, value


where = jax.sharding.SingleDeviceSharding(hlomem.jax.devices("tpu-v5e:1x1")[0])


def array(*shape):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=where)


params = {"layers": array(48, 4096, 4096), "head": array(4096, 1000)}
jax.jit(train_step).lower(params, params, array(10240, 4096), array(10240, 1000)).compile()
