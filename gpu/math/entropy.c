/* See entropy.h. */
#include "gpu/math/entropy.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "gpu/math/range.h"
#include "ssh/base/mem.h"

/* Classes are half octaves of deviation / step, from 2^(LOWEST/2) on; what is below is not coded at all. */
enum { LOWEST = -5, CLASSES = 36, UNARY = 14, SCALES = 64, ZERO_ROW = 62, BAD_ROW = 63, ESCAPE = 20 };
enum { FINE = 256, HALF = FINE / 2, STEP_MOST = 60 * FINE, SCALE_MOST = 4 * 120 };
enum { FINEST = 14 * FINE }; /* the smallest step, below the largest deviation: levels stay far from what can be written */
enum { HEAD = 4, LANE_HEAD = 5, BLOCK = 64, TRIES = 6 };
#define MANY 16      /* levels in a deviation: from there on sums are integrals */
#define ROW_BITS 4.5 /* about what a row's scale costs */

/* What a normal variable does in each class; begun once. */
static struct {
    struct range_chance chances[CLASSES][UNARY];
    double bits[CLASSES], errors[CLASSES]; /* errors: of deviation 1 */
} normal;

/* Low bits of a magnitude that are as good as even chances. */
static int plain_bits(int class)
{
    int octaves = (class + LOWEST) / 2;
    return octaves > 1 ? octaves - 1 : 0;
}

/* ---- of a normal variable ---- */

static double beyond(double level, double ratio) /* P(|z·ratio| would be coded as `level` or more) */
{
    return level < 1 ? 1 : erfc((level - 0.5) / ratio / M_SQRT2);
}

static double density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * M_PI);
}

/* What is coded as `level` is in steps, on average, times the chance of it. */
static double moment(double level, double ratio)
{
    return 2 * ratio * (density((level - 0.5) / ratio) - density((level + 0.5) / ratio));
}

static void normal_chances(int class, double ratio)
{
    for (int i = 0; i < UNARY; i++) {
        double here = beyond(ldexp(i, plain_bits(class)), ratio), more = beyond(ldexp(i + 1, plain_bits(class)), ratio);
        double stop = here > 1e-9 ? 1 - more / here : 0.5;
        uint16_t chance = (uint16_t)(fmin(fmax(stop, 0.002), 0.998) * 65536);
        normal.chances[class][i] = (struct range_chance){chance, chance};
    }
}

static void normal_costs(int class, double ratio)
{
    double bits = 0, kept = 0; /* kept: what decoding takes off the error */
    for (int level = 0; level < 8 + 8 * ratio && ratio < MANY; level++) {
        double p = beyond(level, ratio) - beyond(level + 1, ratio);
        if (p < 1e-12)
            continue;
        bits -= p * (log2(p) - (level > 0));
        kept += level ? level * (2 * moment(level, ratio) - p * level) : 0;
    }
    normal.bits[class] = ratio < MANY ? bits : log2(ratio * sqrt(2 * M_PI * M_E));
    normal.errors[class] = ratio < MANY ? 1 - kept / (ratio * ratio) : 1 / (12 * ratio * ratio);
}

__attribute__((constructor)) static void normal_begin(void)
{
    for (int class = 0; class < CLASSES; class++) {
        double ratio = exp2((class + LOWEST) / 2.0);
        normal_chances(class, ratio);
        normal_costs(class, ratio);
    }
}

/* ---- classes: whole numbers only ---- */

/* ⌊8·log₂ v⌋ · 8 for a normal v > 0, by its bits. */
static int fine_log(float value)
{
    static const uint32_t eighths[] = {759234, 1587184, 2490071, 3474675, 4548394, 5719293, 6996167};
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int log = ((int)(bits >> 23 & 0xFF) - 127) * 8;
    for (int i = 0; i < 7; i++)
        log += (bits & 0x7FFFFF) >= eighths[i];
    return log * (FINE / 8);
}

static int class_of(float deviation, int step)
{
    int above = fine_log(deviation) - step + HALF / 2 - LOWEST * HALF;
    int class = above < 0 ? -1 : above / HALF;
    return class < CLASSES ? class : CLASSES - 1;
}

/* Of falling deviations, those with a class; their classes. */
static int64_t coded_columns(const float *deviation, int64_t columns, int step, uint8_t *classes)
{
    int64_t count = 0;
    for (; count < columns; count++) {
        int class = class_of(deviation[count], step);
        if (class < 0)
            break;
        classes[count] = (uint8_t)class;
    }
    return count;
}

/* ---- which step ---- */

/* `of` at the ratio 2^(log2), between classes on a straight line. */
static double between(const double *of, double log2_ratio)
{
    double at = 2 * log2_ratio - LOWEST;
    int class = (int)floor(at);
    if (class < -1)
        return -1;
    if (class >= CLASSES - 1)
        return of[CLASSES - 1];
    double below = class < 0 ? (of == normal.errors ? 1 : 0) : of[class];
    return below + (at - class) * (of[class + 1] - below);
}

static double row_bits(const float *deviation, int64_t count, int step)
{
    double sum = ROW_BITS, bits;
    for (int64_t i = 0; i < count && (bits = between(normal.bits, (fine_log(deviation[i]) - step) / (double)FINE)) >= 0; i++)
        sum += bits;
    return sum;
}

static int finest(const float *deviation)
{
    int step = fine_log(deviation[0]) - FINEST;
    return step < -STEP_MOST ? -STEP_MOST : step;
}

/* The smallest step at which a row of normal coefficients takes at most so many bits. */
static int step_for(const float *deviation, int64_t count, double bits)
{
    int low = finest(deviation), high = STEP_MOST;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (row_bits(deviation, count, middle) > bits)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t entropy_columns(const float *deviation, int64_t count, double bits)
{
    int step = step_for(deviation, count, bits) - FINE; /* rows may be worth less than normal ones: then the step is smaller */
    int64_t columns = 0;
    while (columns < count && class_of(deviation[columns], step) >= 0)
        columns++;
    return columns ? columns : 1;
}

double entropy_error(const float *deviation, int64_t count, double bits)
{
    int step = step_for(deviation, count, bits);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = between(normal.errors, (fine_log(deviation[i]) - step) / (double)FINE);
        sum += (double)deviation[i] * (double)deviation[i] * (error < 0 ? 1 : error);
    }
    return sum;
}

/* ---- one lane ---- */

struct contexts {
    struct range_chance scales[SCALES], magnitudes[CLASSES][UNARY];
};

static void contexts_begin(struct contexts *contexts)
{
    for (int i = 0; i < SCALES; i++)
        contexts->scales[i] = (struct range_chance){32768, 32768};
    memcpy(contexts->magnitudes, normal.chances, sizeof normal.chances);
}

static void put_scale(struct range_writer *writer, struct contexts *contexts, int scale)
{
    for (int i = 5, node = 1; i >= 0; i--) {
        range_put(writer, &contexts->scales[node], scale >> i & 1);
        node = 2 * node + (scale >> i & 1);
    }
}

static int get_scale(struct range_reader *reader, struct contexts *contexts)
{
    int node = 1;
    while (node < SCALES)
        node = 2 * node + range_get(reader, &contexts->scales[node]);
    return node - SCALES;
}

static void put_level(struct range_writer *writer, struct contexts *contexts, int class, int32_t level)
{
    uint32_t magnitude = (uint32_t)(level < 0 ? -level : level), high = magnitude >> plain_bits(class);
    uint32_t unary = high < UNARY ? high : UNARY;
    for (uint32_t i = 0; i < unary; i++)
        range_put(writer, &contexts->magnitudes[class][i], 1);
    if (unary < UNARY) {
        range_put(writer, &contexts->magnitudes[class][unary], 0);
    } else { /* Elias gamma of what is left */
        int length = 31 - __builtin_clz(high - UNARY + 1);
        range_put_bits(writer, (1u << length) - 1, length);
        range_put_bits(writer, 0, 1);
        range_put_bits(writer, (high - UNARY + 1) ^ 1u << length, length);
    }
    range_put_bits(writer, magnitude & ((1u << plain_bits(class)) - 1), plain_bits(class));
    if (magnitude)
        range_put_bits(writer, level < 0, 1);
}

static int32_t get_level(struct range_reader *reader, struct contexts *contexts, int class)
{
    uint32_t high = 0, magnitude;
    while (high < UNARY && range_get(reader, &contexts->magnitudes[class][high]))
        high++;
    if (high == UNARY) {
        int length = 0;
        while (length < ESCAPE && range_get_bits(reader, 1))
            length++;
        high += (1u << length | range_get_bits(reader, length)) - 1;
    }
    magnitude = high << plain_bits(class) | range_get_bits(reader, plain_bits(class));
    return magnitude && range_get_bits(reader, 1) ? -(int32_t)magnitude : (int32_t)magnitude;
}

/* Scale of a row in quarter octaves: of the coefficients that are worth bits, INT16_MIN for zeros, INT16_MAX for what is not finite. */
static int row_scale(const float *y, const float *inverse, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)(y[i] * inverse[i]) * (double)(y[i] * inverse[i]);
    if (!isfinite(sum))
        return INT16_MAX;
    double scale = sum > 0 ? rint(2 * log2(sum / (double)count)) : -SCALE_MOST;
    return scale <= -SCALE_MOST ? INT16_MIN : scale > SCALE_MOST ? SCALE_MOST : (int)scale;
}

static float length_of(int scale, int step)
{
    return (float)exp2(scale / 4.0 + step / (double)FINE);
}

/* What a message is made of. Rows of `y` are `stride` apart; the first `count` columns are coded. */
struct plan {
    const float *y;
    int64_t stride, count;
    int step;
    const uint8_t *classes;
    const int *scales; /* of all rows */
};

static int largest_scale(const int *scales, int64_t rows)
{
    int largest = INT16_MIN;
    for (int64_t r = 0; r < rows; r++)
        if (scales[r] != INT16_MAX && scales[r] > largest)
            largest = scales[r];
    return largest;
}

static void put_row(struct range_writer *writer, struct contexts *contexts, const struct plan *plan, const float *y, float length)
{
    float inverse = 1 / length;
    int32_t levels[BLOCK];
    for (int64_t begin = 0; begin < plan->count; begin += BLOCK) {
        int64_t count = plan->count - begin < BLOCK ? plan->count - begin : BLOCK;
        for (int64_t i = 0; i < count; i++) {
            float steps = fabsf(y[begin + i]) * inverse, most = (float)(1 << ESCAPE);
            int32_t level = (int32_t)((steps < most ? steps : most) + 0.5f);
            levels[i] = y[begin + i] < 0 ? -level : level;
        }
        for (int64_t i = 0; i < count; i++)
            put_level(writer, contexts, plan->classes[begin + i], levels[i]);
    }
}

/* Bytes of the lane's codes; more than `room`: there was none for them. */
static size_t put_lane(const struct plan *plan, int64_t first, int64_t rows, int largest, uint8_t *out, size_t room)
{
    struct range_writer writer;
    struct contexts contexts;
    range_start(&writer, out, room);
    contexts_begin(&contexts);
    for (int64_t r = first; r < first + rows; r++) {
        int scale = plan->scales[r], below = largest - scale;
        int code = scale == INT16_MAX ? BAD_ROW : scale == INT16_MIN || below >= ZERO_ROW ? ZERO_ROW : below;
        put_scale(&writer, &contexts, code);
        if (code < ZERO_ROW)
            put_row(&writer, &contexts, plan, plan->y + r * plan->stride, length_of(scale, plan->step));
    }
    return range_end(&writer);
}

static void get_row(struct range_reader *reader, struct contexts *contexts, const uint8_t *classes, int64_t count, float length,
                    float *y)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = (float)get_level(reader, contexts, classes[i]) * length;
    }
}

static void get_lane(const uint8_t *bytes, size_t count, const uint8_t *classes, int64_t coded, int step, int largest, int64_t rows,
                     int64_t columns, float *y)
{
    struct range_reader reader;
    struct contexts contexts;
    range_open(&reader, bytes, count);
    contexts_begin(&contexts);
    for (int64_t r = 0; r < rows; r++, y += columns) {
        int code = get_scale(&reader, &contexts);
        if (code < ZERO_ROW)
            get_row(&reader, &contexts, classes, coded, length_of(largest - code, step), y);
        for (int64_t i = 0; i < columns && code == BAD_ROW; i++)
            y[i] = NAN;
    }
}

/* ---- the message ---- */

static int64_t lanes_of(int64_t rows)
{
    return (rows + ENTROPY_LANE - 1) / ENTROPY_LANE;
}

static void put_number(uint8_t *out, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get_number(const uint8_t *in, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)in[i] << 8 * i;
    return value;
}

/* Everything at plan->step: bytes that it takes; what is more than `room` is not written. */
static size_t put_message(const struct plan *plan, int64_t rows, uint8_t *out, size_t room)
{
    size_t at = HEAD + LANE_HEAD * (size_t)lanes_of(rows);
    if (at > room)
        return at;
    put_number(out, (uint32_t)plan->step, 2);
    put_number(out + 2, (uint32_t)plan->count, 2);
    for (int64_t lane = 0; lane < lanes_of(rows); lane++) {
        int64_t first = lane * ENTROPY_LANE, count = rows - first < ENTROPY_LANE ? rows - first : ENTROPY_LANE;
        int largest = largest_scale(plan->scales + first, count);
        uint8_t *head = out + HEAD + LANE_HEAD * lane;
        size_t left = at < room ? room - at : 0;
        size_t bytes = put_lane(plan, first, count, largest, left ? out + at : NULL, left);
        put_number(head, (uint32_t)largest, 2);
        put_number(head + 2, (uint32_t)bytes, 3);
        at += bytes;
    }
    return at;
}

static size_t put_at(struct plan *plan, int step, const float *deviation, int64_t rows, int64_t columns, uint8_t *classes,
                     uint8_t *out, size_t room)
{
    plan->step = step;
    plan->count = coded_columns(deviation, columns, step, classes);
    return put_message(plan, rows, out, room);
}

/* The step is guessed as for normal coefficients, then corrected by what it came to: usually two passes. Bytes taken; 0: nothing fits. */
static size_t fit(struct plan *plan, const float *deviation, int64_t rows, int64_t columns, uint8_t *classes, uint8_t *out,
                  size_t room)
{
    double wanted = 8 * (double)room / (double)rows, asked = wanted;
    int fits = STEP_MOST + 1, over = finest(deviation) - 1, step = step_for(deviation, columns, asked);
    size_t bytes = 0;
    for (int try = 0; over + 1 < fits; try++) {
        bytes = put_at(plan, step, deviation, rows, columns, classes, out, room);
        if (bytes > room)
            over = step;
        else
            fits = step;
        if (bytes <= room && ((double)bytes > 0.997 * (double)room || try >= TRIES))
            return bytes;
        asked *= 0.9985 * wanted / (8 * (double)bytes / (double)rows + 1e-9);
        step = step_for(deviation, columns, asked);
        step = step <= over ? over + 1 + (try > 2) * FINE : step >= fits ? fits - 1 : step;
        step = try >= TRIES && fits <= STEP_MOST ? fits : step > STEP_MOST ? STEP_MOST : step;
    }
    if (fits > STEP_MOST)
        return 0;
    return bytes <= room && plan->step == fits ? bytes : put_at(plan, fits, deviation, rows, columns, classes, out, room);
}

void entropy_encode(const float *y, const float *deviation, int64_t rows, int64_t columns, uint8_t *out, size_t bytes)
{
    int *scales = mem_array((size_t)rows, sizeof *scales);
    uint8_t *classes = mem_array((size_t)columns, 1);
    float *inverse = mem_array((size_t)columns, sizeof *inverse);
    struct plan plan = {.y = y, .stride = columns, .classes = classes, .scales = scales};
    int64_t worth = coded_columns(deviation, columns, step_for(deviation, columns, 8 * (double)bytes / (double)rows), classes);
    for (int64_t i = 0; i < columns; i++)
        inverse[i] = 1 / deviation[i];
    for (int64_t r = 0; r < rows; r++)
        scales[r] = row_scale(y + r * columns, inverse, worth ? worth : 1);
    size_t taken = fit(&plan, deviation, rows, columns, classes, out, bytes);
    if (!taken) {
        put_number(out, (uint32_t)ENTROPY_NOTHING, 2);
        taken = 2;
    }
    memset(out + taken, 0, bytes - taken);
    mem_free(scales);
    mem_free(classes);
    mem_free(inverse);
}

int64_t entropy_told(const uint8_t *message, size_t bytes)
{
    int step = bytes < HEAD ? ENTROPY_NOTHING : (int16_t)get_number(message, 2);
    return step < -STEP_MOST || step > STEP_MOST ? 0 : get_number(message + 2, 2);
}

void entropy_decode(const uint8_t *message, size_t bytes, const float *deviation, int64_t rows, int64_t columns, float *y)
{
    memset(y, 0, (size_t)(rows * columns) * sizeof *y);
    size_t at = HEAD + LANE_HEAD * (size_t)lanes_of(rows);
    int step = (int16_t)get_number(message, 2);
    if (at > bytes || step < -STEP_MOST || step > STEP_MOST)
        return;
    uint8_t *classes = mem_array((size_t)columns, 1);
    int64_t coded = coded_columns(deviation, columns, step, classes), told = get_number(message + 2, 2);
    for (int64_t lane = 0; lane < lanes_of(rows); lane++) {
        const uint8_t *head = message + HEAD + LANE_HEAD * lane;
        int64_t first = lane * ENTROPY_LANE, count = rows - first < ENTROPY_LANE ? rows - first : ENTROPY_LANE;
        int largest = (int16_t)get_number(head, 2);
        size_t length = get_number(head + 2, 3), left = bytes - at;
        length = length < left ? length : left;
        largest = largest > SCALE_MOST ? SCALE_MOST : largest < -SCALE_MOST ? -SCALE_MOST : largest;
        get_lane(message + at, length, classes, told < coded ? told : coded, step, largest, count, columns, y + first * columns);
        at += length;
    }
    mem_free(classes);
}
