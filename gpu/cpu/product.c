/*
 * Products as oneDNN primitives, where they are faster than its gemm (gemm.c says where). A primitive is made for one shape and one
 * number of threads and kept, since making it compiles code. This is the one file that minds the version of oneDNN: its
 * descriptions were structures until 2.x and are objects since 3.0.
 */
#include <dnnl.h>

#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"
#include "ssh/base/mem.h"

enum {
    KEPT = 64,         /* shapes; the one after these begins anew */
    ARGUMENTS = 3,
};

struct product {
    struct product_shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[ARGUMENTS];
};

struct products {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct product kept[KEPT];
    int count;
};

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;

static dnnl_status_t describe(description *out, const dnnl_dims_t sides, dnnl_data_type_t type, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, 2, sides, type, strides);
}

static dnnl_status_t make_memory(dnnl_memory_t *memory, const description *of, dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, *of, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t plan_product(dnnl_primitive_desc_t *plan, dnnl_engine_t engine, const description of[ARGUMENTS],
                                  dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(plan, engine, of[0], of[1], NULL, of[2], attributes);
}

static dnnl_status_t add_to_old(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_sum(after, 1, 0, dnnl_f32);
}

static void forget(description *of)
{
    if (*of)
        dnnl_memory_desc_destroy(*of);
}
#else
typedef dnnl_memory_desc_t description;

static dnnl_status_t describe(description *out, const dnnl_dims_t sides, dnnl_data_type_t type, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, 2, sides, type, strides);
}

static dnnl_status_t make_memory(dnnl_memory_t *memory, const description *of, dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, of, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t plan_product(dnnl_primitive_desc_t *plan, dnnl_engine_t engine, const description of[ARGUMENTS],
                                  dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t what;
    dnnl_status_t status = dnnl_matmul_desc_init(&what, &of[0], &of[1], NULL, &of[2]);
    return status ? status : dnnl_primitive_desc_create(plan, &what, attributes, engine, NULL);
}

static dnnl_status_t add_to_old(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_sum(after, 1);
}

static void forget(description *of)
{
    (void)of;
}
#endif

static void drop(struct product *product)
{
    for (int i = 0; i < ARGUMENTS; i++)
        if (product->memories[i])
            dnnl_memory_destroy(product->memories[i]);
    if (product->primitive)
        dnnl_primitive_destroy(product->primitive);
    *product = (struct product){.primitive = NULL};
}

/* What is done with sums beside writing them. */
static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attributes, bool accumulate)
{
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attributes);
    if (!status && accumulate)
        status = dnnl_post_ops_create(&after);
    if (!status && accumulate)
        status = add_to_old(after);
    if (!status && accumulate)
        status = dnnl_primitive_attr_set_post_ops(*attributes, after);
    if (after)
        dnnl_post_ops_destroy(after);
    return status;
}

static dnnl_status_t make(struct products *products, struct product *product)
{
    const struct product_shape *s = &product->shape;
    const dnnl_dims_t sides[ARGUMENTS] = {{s->m, s->k}, {s->k, s->n}, {s->m, s->n}};
    const dnnl_dims_t strides[ARGUMENTS] = {{s->transpose_a ? 1 : s->lda, s->transpose_a ? s->lda : 1},
                                            {s->transpose_b ? 1 : s->ldb, s->transpose_b ? s->ldb : 1},
                                            {s->ldc, 1}};
    description of[ARGUMENTS];
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t plan = NULL;
    dnnl_status_t status = dnnl_success;
    memset(of, 0, sizeof of);
    for (int i = 0; i < ARGUMENTS && !status; i++)
        status = describe(&of[i], sides[i], i < 2 && s->half ? dnnl_bf16 : dnnl_f32, strides[i]);
    for (int i = 0; i < ARGUMENTS && !status; i++)
        status = make_memory(&product->memories[i], &of[i], products->engine);
    if (!status)
        status = make_attributes(&attributes, s->accumulate);
    if (!status)
        status = plan_product(&plan, products->engine, of, attributes);
    if (!status)
        status = dnnl_primitive_create(&product->primitive, plan);
    if (plan)
        dnnl_primitive_desc_destroy(plan);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    for (int i = 0; i < ARGUMENTS; i++)
        forget(&of[i]);
    return status;
}

static struct product *find(struct products *products, const struct product_shape *shape)
{
    for (int i = 0; i < products->count; i++)
        if (memcmp(&products->kept[i].shape, shape, sizeof *shape) == 0)
            return &products->kept[i];
    while (products->count == KEPT || (products->count > 0 && !products->kept[products->count - 1].primitive))
        drop(&products->kept[--products->count]);
    struct product *product = &products->kept[products->count++];
    *product = (struct product){.shape = *shape};
    return make(products, product) == dnnl_success ? product : NULL;
}

static struct products *open_products(struct device *device)
{
    struct products *products = mem_new(sizeof *products);
    device->products = products;
    if (dnnl_engine_create(&products->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&products->stream, products->engine, dnnl_stream_default_flags) != dnnl_success)
        BUG("oneDNN has no engine for this processor");
    return products;
}

bool product_make(struct device *device, float *c, const void *a, const void *b, const struct product_shape *shape)
{
    struct products *products = device->products ? device->products : open_products(device);
    threads_set(device->threads);
    const struct product *product = find(products, shape);
    if (!product)
        return false;
    void *const places[ARGUMENTS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c};
    dnnl_exec_arg_t arguments[ARGUMENTS] = {{DNNL_ARG_SRC, NULL}, {DNNL_ARG_WEIGHTS, NULL}, {DNNL_ARG_DST, NULL}};
    for (int i = 0; i < ARGUMENTS; i++) {
        dnnl_memory_set_data_handle(product->memories[i], places[i]);
        arguments[i].memory = product->memories[i];
    }
    if (dnnl_primitive_execute(product->primitive, products->stream, ARGUMENTS, arguments) != dnnl_success ||
        dnnl_stream_wait(products->stream) != dnnl_success)
        BUG("oneDNN fails at a product of %lld × %lld × %lld", (long long)shape->m, (long long)shape->n, (long long)shape->k);
    return true;
}

void product_close(struct device *device)
{
    struct products *products = device->products;
    if (!products)
        return;
    while (products->count)
        drop(&products->kept[--products->count]);
    dnnl_stream_destroy(products->stream);
    dnnl_engine_destroy(products->engine);
    mem_free(products);
}
