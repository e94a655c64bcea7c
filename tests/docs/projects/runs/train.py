import jax
import jax.numpy as jnp


def init(key):
    return [jax.random.normal(k, (512, 512)) for k in jax.random.split(key, 4)]


def predict(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return x


def loss(params, x):
    return jnp.mean(predict(params, x) ** 2)


def train_step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))


params = jax.jit(init)(jax.random.key(0))
x = jnp.ones((2048, 512))
for _ in range(2):
    params = jax.jit(train_step)(params, x)
jax.jit(loss)(params, x).block_until_ready()
