/*
 * The table of the language. A message exists because it has a row in `messages`; its payload is what its field rows say, in struct order.
 *
 * The kind of a field comes from the C type of the member (_Generic), so a row cannot contradict the struct; that no member
 * was forgotten, and that max_bytes is exact, is checked by tests/unit/wire.c.
 */
#include "ssh/wire/wire.h"

#define MEMBER(message, member) ((struct wire_##message *)0)->member
#define KIND(value) \
    _Generic((value), uint8_t: WIRE_U8, uint16_t: WIRE_U16, uint32_t: WIRE_U32, uint64_t: WIRE_U64, int32_t: WIRE_I32, \
             float: WIRE_F32, double: WIRE_F64, char *: WIRE_STRING, struct wire_bytes: WIRE_TAIL)
/* A whole number between `low` and `high`; both 0 = any. */
#define RANGE(message, member, low, high) \
    {.name = #member, .kind = KIND(MEMBER(message, member)), .offset = offsetof(struct wire_##message, member), \
     .size = sizeof MEMBER(message, member), .least = (low), .most = (high)}
#define FIELD(message, member) RANGE(message, member, 0, 0)
#define FLAG(message, member) RANGE(message, member, 0, 1)

static const struct wire_field hello_fields[] = {
    FIELD(hello, version), RANGE(hello, role, ROLE_CONSOLE, ROLE_ANCHOR), FIELD(hello, program), FIELD(hello, name),
    FIELD(hello, host), FIELD(hello, pid), FIELD(hello, profile_hash), FIELD(hello, host_nonce), FIELD(hello, announce),
};
static const struct wire_field heartbeat_fields[] = {
    FIELD(heartbeat, sent_ns), FIELD(heartbeat, echo_ns), FIELD(heartbeat, held_ns), FIELD(heartbeat, wall_ns),
};
static const struct wire_field bye_fields[] = {FIELD(bye, err), FIELD(bye, text)};
static const struct wire_field spawn_fields[] = {
    FIELD(spawn, process), RANGE(spawn, role, ROLE_STAGE, ROLE_ANCHOR), FIELD(spawn, incarnation), FIELD(spawn, listen),
    FIELD(spawn, announce),
};
static const struct wire_field signal_fields[] = {
    FIELD(signal, process), FIELD(signal, incarnation), FIELD(signal, signal),
};
static const struct wire_field process_fields[] = {
    FIELD(process, process), FIELD(process, incarnation), RANGE(process, state, PROCESS_WANTED, PROCESS_EXITED),
    FIELD(process, pid), FIELD(process, exit_code), FIELD(process, signal), FIELD(process, reason),
};
static const struct wire_field assign_fields[] = {
    FIELD(assign, replica), FIELD(assign, replicas), FIELD(assign, stage), FIELD(assign, stages), FIELD(assign, first_layer), FIELD(assign, layers),
    FIELD(assign, in_flight), FIELD(assign, threads), FIELD(assign, uplink_bps), FIELD(assign, first_step),
    FIELD(assign, resume_bytes), FIELD(assign, resume_hash),
    FIELD(assign, members), FIELD(assign, settings),
};
static const struct wire_field road_fields[] = {
    FIELD(road, peer), FLAG(road, dial), RANGE(road, side, ROAD_UPSTREAM, ROAD_STAGE), FIELD(road, replica), FIELD(road, index),
    FIELD(road, life), FIELD(road, address),
};
static const struct wire_field ready_fields[] = {
    RANGE(ready, state, READY_LOADED, READY_JOINED), FIELD(ready, parameters), FIELD(ready, memory_bytes),
};
static const struct wire_field start_fields[] = {FIELD(start, first_step), FIELD(start, last_step)};
static const struct wire_field hold_fields[] = {FIELD(hold, reason)};
static const struct wire_field stop_fields[] = {FIELD(stop, grace_ms), FIELD(stop, reason)};
static const struct wire_field event_fields[] = {
    RANGE(event, level, EVENT_INFO, EVENT_ALERT), FIELD(event, step), FIELD(event, code), FIELD(event, text),
};
static const struct wire_field done_fields[] = {FIELD(done, step)};
static const struct wire_field save_fields[] = {FIELD(save, from_step)};
static const struct wire_field saved_fields[] = {
    FIELD(saved, step), FIELD(saved, bytes), FIELD(saved, hash), FLAG(saved, all), FIELD(saved, held_ns), FIELD(saved, elapsed_ns), FIELD(saved, file),
    FIELD(saved, reason),
};
static const struct wire_field kept_fields[] = {FIELD(kept, from_step)};
static const struct wire_field knob_fields[] = {
    FIELD(knob, ledger), FIELD(knob, from_step), FIELD(knob, name), FIELD(knob, value),
};
static const struct wire_field knob_used_fields[] = {
    FIELD(knob_used, ledger), FIELD(knob_used, step), FIELD(knob_used, name), FIELD(knob_used, value),
};
static const struct wire_field stamp_fields[] = {
    RANGE(stamp, kind, STAMP_TRAIN, STAMP_CALIBRATE), FIELD(stamp, micro_batches), FIELD(stamp, keep),
    FIELD(stamp, learning_rate), FIELD(stamp, clip_scale), FLAG(stamp, apply), FIELD(stamp, mask_rate),
    FIELD(stamp, codec_version), FIELD(stamp, sync_every), FIELD(stamp, sync_rank), FIELD(stamp, sync_rate),
    FIELD(stamp, sync_merge), FIELD(stamp, sync_since), FIELD(stamp, sync_number),
    FIELD(stamp, join_replica), FIELD(stamp, join_life), FIELD(stamp, join_step),
    FLAG(stamp, capture), FIELD(stamp, basis), FIELD(stamp, mix),
};
static const struct wire_field act_fields[] = {
    FIELD(act, sequences), FIELD(act, tokens), RANGE(act, id_bytes, 1, 4), RANGE(act, marks, 0, 2),
    FIELD(act, mask_checksum), FIELD(act, body),
};
static const struct wire_field grad_fields[] = {
    FIELD(grad, mask_checksum), FIELD(grad, squares), FIELD(grad, loss), FIELD(grad, targets), FIELD(grad, body),
};
static const struct wire_field codec_state_fields[] = {
    FIELD(codec_state, boundary), FIELD(codec_state, version), FIELD(codec_state, body),
};
static const struct wire_field tied_fields[] = {FIELD(tied, first), FIELD(tied, body)};
static const struct wire_field sample_fields[] = {
    FIELD(sample, step), RANGE(sample, kind, STAMP_TRAIN, STAMP_FINISH), FIELD(sample, loss), FIELD(sample, gradient_norm),
    FIELD(sample, learning_rate), FIELD(sample, clip_scale), FIELD(sample, mask_rate), FIELD(sample, tokens),
    FIELD(sample, step_ns), FIELD(sample, compute_ns), FIELD(sample, pack_ns), FIELD(sample, wait_act_ns), FIELD(sample, wait_grad_ns),
    FIELD(sample, wait_stamp_ns), FIELD(sample, wait_send_ns), FIELD(sample, wait_data_ns), FIELD(sample, wait_sync_ns), FIELD(sample, sync_round),
    FIELD(sample, sync_replica), FIELD(sample, sent_act_bytes),
    FIELD(sample, received_act_bytes), FIELD(sample, skipped), FIELD(sample, memory_bytes),
    FIELD(sample, began_wall_ns), FIELD(sample, timeline),
};
static const struct wire_field road_sample_fields[] = {
    FIELD(road_sample, peer), RANGE(road_sample, lane, LANE_CONTROL, LANE_TELEM), FIELD(road_sample, sent_bytes),
    FIELD(road_sample, received_bytes), FIELD(road_sample, sent_frames), FIELD(road_sample, received_frames),
    FIELD(road_sample, queued_bytes), FIELD(road_sample, hold_reasons), FIELD(road_sample, rtt_ns),
    FIELD(road_sample, capacity_bps), FIELD(road_sample, evaluation_bytes), FIELD(road_sample, dense_bytes),
};
static const struct wire_field host_fields[] = {
    FIELD(host, cpu_share), FIELD(host, load), FIELD(host, cores), FIELD(host, memory_bytes), FIELD(host, memory_free_bytes),
    FIELD(host, disk_bytes), FIELD(host, disk_free_bytes), FIELD(host, gpus), FIELD(host, gpu), FIELD(host, gpu_share),
    FIELD(host, gpu_memory_bytes), FIELD(host, gpu_used_bytes), FIELD(host, gpu_celsius), FIELD(host, gpu_watts), FIELD(host, host),
    FIELD(host, clock_offset), FIELD(host, rtt_ns), FIELD(host, heard_ns_ago), FIELD(host, processes), FIELD(host, price_per_hour),
    RANGE(host, use, HOST_USED, HOST_DRAINED),
    RANGE(host, login, LOGIN_UNKNOWN, LOGIN_SHUT), FIELD(host, login_ns_ago),
};
static const struct wire_field spectrum_fields[] = {
    FIELD(spectrum, version), FIELD(spectrum, layer), RANGE(spectrum, matrix_class, MATRIX_Q, MATRIX_DOWN), FIELD(spectrum, rank),
    FIELD(spectrum, rows), FIELD(spectrum, columns), FIELD(spectrum, energy), FIELD(spectrum, values),
};
static const struct wire_field sync_fields[] = {
    FIELD(sync, round), RANGE(sync, purpose, SYNC_ROUND, SYNC_FINAL), FLAG(sync, exchange), FIELD(sync, fragment),
    FIELD(sync, tokens), FIELD(sync, offset), FIELD(sync, total), FIELD(sync, body),
};
static const struct wire_field agree_fields[] = {
    FIELD(agree, round), FIELD(agree, ledger), FIELD(agree, name), FIELD(agree, value),
};
static const struct wire_field part_fields[] = {FIELD(part, replica), FIELD(part, life)};
static const struct wire_field parted_fields[] = {FIELD(parted, replica), FIELD(parted, life), FIELD(parted, received),
                                                  FLAG(parted, decided)};
static const struct wire_field leave_fields[] = {FIELD(leave, replica), FIELD(leave, life), FIELD(leave, count)};
static const struct wire_field have_fields[] = {
    FIELD(have, round), RANGE(have, purpose, SYNC_ROUND, SYNC_FINAL), FLAG(have, exchange), FIELD(have, fragment),
};
static const struct wire_field join_fields[] = {FIELD(join, replica), FIELD(join, life)};
static const struct wire_field enter_fields[] = {
    FIELD(enter, replica), FIELD(enter, life), FIELD(enter, step), FIELD(enter, round), FIELD(enter, sync_every),
    FIELD(enter, sync_rank), FIELD(enter, sync_rate), FIELD(enter, sync_merge), FIELD(enter, sync_since),
    FIELD(enter, sync_number),
};
static const struct wire_field entered_fields[] = {
    FIELD(entered, replica), FIELD(entered, life), FIELD(entered, step), FIELD(entered, round),
};
static const struct wire_field pull_fields[] = {FIELD(pull, fragment), FIELD(pull, offset)};
static const struct wire_field state_fields[] = {
    FIELD(state, fragment), FIELD(state, round), FIELD(state, hash), FIELD(state, pending), FIELD(state, pending_step),
    FIELD(state, offset), FIELD(state, total), FIELD(state, body),
};
static const struct wire_field outer_fields[] = {
    FIELD(outer, round), FIELD(outer, step), FIELD(outer, fragment), FLAG(outer, skipped), FIELD(outer, contributors),
    FIELD(outer, hash), FIELD(outer, sent_bytes),
};
static const struct wire_field capture_fields[] = {FIELD(capture, from_step)};
static const struct wire_field grant_fields[] = {FIELD(grant, version), FIELD(grant, bytes), FIELD(grant, rate_bps)};
static const struct wire_field use_fields[] = {FIELD(use, version), FIELD(use, from_step)};
static const struct wire_field mark_fields[] = {
    RANGE(mark, mark, MARK_CAPTURED, MARK_DAMAGED), FIELD(mark, version), FIELD(mark, step), FIELD(mark, bytes),
    FIELD(mark, total), FIELD(mark, elapsed_ns), FIELD(mark, value),
};
static const struct wire_field snapshot_fields[] = {
    FIELD(snapshot, version), FIELD(snapshot, base), FIELD(snapshot, first_layer), FIELD(snapshot, layers),
    FIELD(snapshot, chunks), FIELD(snapshot, words),
};
static const struct wire_field chunk_fields[] = {
    FIELD(chunk, version), FIELD(chunk, chunk), RANGE(chunk, coding, CHUNK_WHOLE, CHUNK_DELTA), FIELD(chunk, hash),
    FIELD(chunk, body),
};
static const struct wire_field held_fields[] = {
    FIELD(held, version), FIELD(held, hash), FIELD(held, next), FIELD(held, chunks),
};
static const struct wire_field follow_fields[] = {
    FIELD(follow, number), FIELD(follow, before), RANGE(follow, kind, FOLLOW_ROUND, FOLLOW_VERSION), RANGE(follow, exchange, 0, 1),
    FIELD(follow, fragment), FIELD(follow, first_layer), FIELD(follow, layers), FIELD(follow, rank), FIELD(follow, part),
    FIELD(follow, parts), FIELD(follow, replica), FIELD(follow, share), FIELD(follow, rate), FIELD(follow, momentum),
    FIELD(follow, hash), FIELD(follow, offset), FIELD(follow, total), FIELD(follow, body),
};
static const struct wire_field want_fields[] = {FIELD(want, version), FIELD(want, chunk)};
static const struct wire_field statistics_fields[] = {
    FIELD(statistics, version), FIELD(statistics, boundary), FLAG(statistics, backward), FIELD(statistics, body),
};
static const struct wire_field basis_fields[] = {
    FIELD(basis, version), FIELD(basis, matrix), FIELD(basis, matrices), FIELD(basis, rows), FIELD(basis, columns),
    FIELD(basis, rank), FIELD(basis, energy), FIELD(basis, tokens), FIELD(basis, body),
};
static const struct wire_field meter_fields[] = {
    FIELD(meter, step), FIELD(meter, version), RANGE(meter, matrix_class, MATRIX_Q, MATRIX_DOWN), FIELD(meter, matrices),
    FIELD(meter, mix), FIELD(meter, gradient), FIELD(meter, corrected), FIELD(meter, changed), FIELD(meter, anchor),
    FIELD(meter, aligned), FIELD(meter, inside), FIELD(meter, signal), FIELD(meter, noise),
};
static const struct wire_field anchor_row_fields[] = {
    FIELD(anchor_row, host), FIELD(anchor_row, saying), FIELD(anchor_row, flipped), FIELD(anchor_row, used),
    FIELD(anchor_row, pending), FIELD(anchor_row, versions), FIELD(anchor_row, staleness), FIELD(anchor_row, age),
    FIELD(anchor_row, target), FIELD(anchor_row, mix), FIELD(anchor_row, eta_seconds), FIELD(anchor_row, delta_share),
    FIELD(anchor_row, sent_bytes), FIELD(anchor_row, full_bytes), FIELD(anchor_row, cosine), FIELD(anchor_row, inside),
    FIELD(anchor_row, norm_ratio), FIELD(anchor_row, changed), FIELD(anchor_row, noise), FIELD(anchor_row, compute_seconds),
    FIELD(anchor_row, validation_loss), FIELD(anchor_row, validation_version),
    FIELD(anchor_row, price_per_hour), FIELD(anchor_row, captured), FIELD(anchor_row, sent), FIELD(anchor_row, returned),
    FIELD(anchor_row, computed), FLAG(anchor_row, follows),
};
static const struct wire_field watch_fields[] = {FLAG(watch, follow), FIELD(watch, from_event)};
static const struct wire_field run_state_fields[] = {
    FIELD(run_state, run), FIELD(run_state, run_id), RANGE(run_state, phase, PHASE_FORMING, PHASE_STOPPED),
    FIELD(run_state, reason), FIELD(run_state, step), FIELD(run_state, steps), FIELD(run_state, loss),
    FIELD(run_state, first_validation_loss), FIELD(run_state, validation_loss), FIELD(run_state, validation_step),
    FIELD(run_state, gradient_norm), FIELD(run_state, tokens_per_second), FIELD(run_state, step_seconds),
    FIELD(run_state, started_wall_ms), FIELD(run_state, trained_ns), FIELD(run_state, mask_rate), FIELD(run_state, tokens),
    FIELD(run_state, newest_event), FIELD(run_state, viewers), FIELD(run_state, spent), FIELD(run_state, spend_per_hour),
    FIELD(run_state, spend_forecast),
};
static const struct wire_field process_row_fields[] = {
    FIELD(process_row, process), FIELD(process_row, host), RANGE(process_row, role, ROLE_CONSOLE, ROLE_ANCHOR),
    RANGE(process_row, state, PROCESS_WANTED, PROCESS_EXITED), FIELD(process_row, replica), FIELD(process_row, stage),
    FIELD(process_row, first_layer), FIELD(process_row, layers), FIELD(process_row, incarnation), FIELD(process_row, pid),
    FIELD(process_row, heard_ns_ago), FIELD(process_row, step), FIELD(process_row, memory_bytes),
    FIELD(process_row, compute_share), FIELD(process_row, waiting),
};
static const struct wire_field road_row_fields[] = {
    FIELD(road_row, from), FIELD(road_row, to), RANGE(road_row, lane, LANE_CONTROL, LANE_TELEM), FIELD(road_row, sent_bytes),
    FIELD(road_row, evaluation_bytes), FIELD(road_row, dense_bytes), FIELD(road_row, bytes_per_second), FIELD(road_row, queued_bytes),
    FIELD(road_row, hold_reasons), FIELD(road_row, rtt_ns), FIELD(road_row, capacity_bps),
    FIELD(road_row, price_per_hour),
};
static const struct wire_field event_row_fields[] = {
    FIELD(event_row, id), FIELD(event_row, wall_ms), FIELD(event_row, step),
    RANGE(event_row, level, EVENT_INFO, EVENT_ALERT), FIELD(event_row, source), FIELD(event_row, incarnation),
    FIELD(event_row, code), FIELD(event_row, text),
};
static const struct wire_field ledger_row_fields[] = {
    FIELD(ledger_row, id), FIELD(ledger_row, wall_ms), FIELD(ledger_row, name), FIELD(ledger_row, old_value),
    FIELD(ledger_row, new_value), FIELD(ledger_row, who), RANGE(ledger_row, state, LEDGER_PROPOSED, LEDGER_REFUSED),
    FIELD(ledger_row, step), FIELD(ledger_row, watched_until), FIELD(ledger_row, loss_most), FIELD(ledger_row, norm_most),
};
static const struct wire_field knob_row_fields[] = {
    FIELD(knob_row, name), FIELD(knob_row, value), FLAG(knob_row, pending), FIELD(knob_row, pending_value),
};
static const struct wire_field state_end_fields[] = {FIELD(state_end, newest_event)};
static const struct wire_field order_fields[] = {
    RANGE(order, kind, ORDER_SET, ORDER_LOGIN), FIELD(order, request), FIELD(order, who), FIELD(order, name),
    FIELD(order, value), FIELD(order, text),
};
static const struct wire_field reply_fields[] = {
    FIELD(reply, request), FIELD(reply, err), FIELD(reply, ledger), FIELD(reply, text),
};

/* The most bytes of a text field: its length and all but the NUL. */
#define NAME_BYTES (2 + WIRE_NAME - 1)
#define ADDRESS_BYTES (2 + WIRE_ADDRESS - 1)
#define TEXT_BYTES (2 + WIRE_TEXT - 1)
#define MIB ((uint32_t)1 << 20)

#define ROW(TYPE, message, way, on, most_bytes) \
    {.type = WIRE_##TYPE, .name = #TYPE, .direction = (way), .lane = (on), .max_bytes = (most_bytes), \
     .struct_bytes = sizeof(struct wire_##message), .fields = message##_fields, \
     .field_count = sizeof message##_fields / sizeof *message##_fields}

static const struct wire_message messages[] = {
    ROW(HELLO, hello, "both", LANE_CONTROL, 23 + 3 * NAME_BYTES + ADDRESS_BYTES),
    ROW(HEARTBEAT, heartbeat, "both", LANE_CONTROL, 32),
    ROW(BYE, bye, "both", LANE_CONTROL, 4 + TEXT_BYTES),

    ROW(SPAWN, spawn, "S→A", LANE_CONTROL, 5 + NAME_BYTES + 2 * ADDRESS_BYTES),
    ROW(SIGNAL, signal, "S→A", LANE_CONTROL, 8 + NAME_BYTES),
    ROW(PROCESS, process, "A→S", LANE_CONTROL, 17 + NAME_BYTES + TEXT_BYTES),
    ROW(ASSIGN, assign, "S→W", LANE_CONTROL, 56 + (128 << 10)),
    ROW(ROAD, road, "S→W", LANE_CONTROL, 10 + NAME_BYTES + ADDRESS_BYTES),
    ROW(READY, ready, "W→S", LANE_CONTROL, 17),
    ROW(START, start, "S→W", LANE_CONTROL, 16),
    ROW(HOLD, hold, "S→W", LANE_CONTROL, TEXT_BYTES),
    ROW(STOP, stop, "S→W, S→A", LANE_CONTROL, 4 + TEXT_BYTES),
    ROW(EVENT, event, "W→S, A→S", LANE_CONTROL, 9 + NAME_BYTES + TEXT_BYTES),
    ROW(DONE, done, "W→S", LANE_CONTROL, 8),
    ROW(SAVE, save, "S→W", LANE_CONTROL, 8),
    ROW(SAVED, saved, "W→S", LANE_CONTROL, 41 + NAME_BYTES + TEXT_BYTES),
    ROW(KEPT, kept, "S→W", LANE_CONTROL, 8),

    ROW(KNOB, knob, "S→W", LANE_CONTROL, 16 + 2 * NAME_BYTES),
    ROW(KNOB_USED, knob_used, "W→S", LANE_CONTROL, 16 + 2 * NAME_BYTES),

    ROW(STAMP, stamp, "W→W downstream", LANE_ACT, 79),
    ROW(ACT, act, "W→W downstream", LANE_ACT, 256 * MIB),
    ROW(GRAD, grad, "W→W upstream", LANE_ACT, 256 * MIB),
    ROW(CODEC_STATE, codec_state, "W→W", LANE_ACT, 16 * MIB),
    ROW(TIED, tied, "W→W", LANE_ACT, 12 + 4 * WIRE_TIED_FLOATS),

    ROW(CAPTURE, capture, "S→W", LANE_CONTROL, 8),
    ROW(GRANT, grant, "S→W", LANE_CONTROL, 24),
    ROW(USE, use, "S→W", LANE_CONTROL, 16),
    ROW(MARK, mark, "W→S", LANE_CONTROL, 49),
    ROW(SNAPSHOT, snapshot, "stage→anchor", LANE_BULK, 32),
    ROW(CHUNK, chunk, "stage→anchor", LANE_BULK, 25 + 2 * WIRE_CHUNK_WORDS + 4096),
    ROW(HELD, held, "anchor→stage", LANE_BULK, 28),
    ROW(WANT, want, "anchor→stage", LANE_BULK, 12),
    ROW(BASIS, basis, "anchor→stage", LANE_BULK, 42 + WIRE_BASIS_BYTES),
    ROW(METER, meter, "W→S", LANE_TELEM, 87),
    ROW(STATISTICS, statistics, "anchor→stage", LANE_BULK, 16 * MIB),
    ROW(FOLLOW, follow, "stage→anchor", LANE_BULK, 72 + WIRE_SYNC_BYTES),

    ROW(SAMPLE, sample, "W→S", LANE_TELEM, 167 + NAME_BYTES),
    ROW(ROAD_SAMPLE, road_sample, "W→S", LANE_TELEM, 77 + NAME_BYTES),
    ROW(HOST, host, "A→S", LANE_TELEM, 116 + 2 * NAME_BYTES),
    ROW(SPECTRUM, spectrum, "W→S", LANE_TELEM, 29 + TEXT_BYTES),

    ROW(WATCH, watch, "C→S", LANE_CONTROL, 9),
    /* What only the newest of matters to a viewer may be replaced on TELEM; what must not be lost goes on CONTROL. STATE_END
     * goes last on TELEM, so that it comes behind all rows of both lanes. */
    ROW(RUN_STATE, run_state, "S→C", LANE_TELEM, 149 + NAME_BYTES + TEXT_BYTES),
    ROW(PROCESS_ROW, process_row, "S→C", LANE_TELEM, 50 + 2 * NAME_BYTES + TEXT_BYTES),
    ROW(ROAD_ROW, road_row, "S→C", LANE_TELEM, 69 + 2 * NAME_BYTES),
    ROW(EVENT_ROW, event_row, "S→C", LANE_CONTROL, 29 + 2 * NAME_BYTES + TEXT_BYTES),
    ROW(LEDGER_ROW, ledger_row, "S→C", LANE_CONTROL, 49 + 4 * NAME_BYTES),
    ROW(KNOB_ROW, knob_row, "S→C", LANE_CONTROL, 1 + 3 * NAME_BYTES),
    ROW(STATE_END, state_end, "S→C", LANE_TELEM, 8),
    ROW(ORDER, order, "C→S", LANE_CONTROL, 5 + 3 * NAME_BYTES + TEXT_BYTES),
    ROW(REPLY, reply, "S→C", LANE_CONTROL, 16 + TEXT_BYTES),
    ROW(ANCHOR_ROW, anchor_row, "S→C", LANE_TELEM, 201 + NAME_BYTES + TEXT_BYTES),
    ROW(METER_ROW, meter, "S→C", LANE_TELEM, 87),
    ROW(HOST_ROW, host, "S→C", LANE_TELEM, 116 + 2 * NAME_BYTES),
    ROW(SPECTRUM_ROW, spectrum, "S→C", LANE_TELEM, 29 + TEXT_BYTES),

    ROW(SYNC, sync, "W→W siblings", LANE_SYNC, 40 + WIRE_SYNC_BYTES),
    ROW(OUTER, outer, "W→S", LANE_CONTROL, 37),
    ROW(AGREE, agree, "W→W siblings", LANE_SYNC, 16 + 2 * NAME_BYTES),
    ROW(PART, part, "W→S, S→W", LANE_CONTROL, 6),
    ROW(PARTED, parted, "W→S", LANE_CONTROL, 15),
    ROW(LEAVE, leave, "S→W", LANE_CONTROL, 14),
    ROW(HAVE, have, "W→W siblings", LANE_SYNC, 12),
    ROW(JOIN, join, "S→W", LANE_CONTROL, 6),
    ROW(ENTER, enter, "W→W siblings", LANE_SYNC, 52),
    ROW(ENTERED, entered, "W→S", LANE_CONTROL, 22),
    ROW(PULL, pull, "W→W siblings", LANE_SYNC, 10),
    ROW(STATE, state, "W→W siblings", LANE_BULK, 54 + WIRE_SYNC_BYTES),
};

#define MESSAGE_COUNT (sizeof messages / sizeof *messages)

const struct wire_message *wire_find(uint16_t type)
{
    for (size_t i = 0; i < MESSAGE_COUNT; i++)
        if (messages[i].type == type)
            return &messages[i];
    return NULL;
}

const struct wire_message *wire_all(size_t *count)
{
    *count = MESSAGE_COUNT;
    return messages;
}
