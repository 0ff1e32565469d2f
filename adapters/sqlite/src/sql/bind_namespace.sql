INSERT INTO namespace (namespace, timestamp_bits, datacenter_bits, worker_bits, sequence_bits, field_order, epoch_ms,
    tick_ms, max_horizon_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (namespace) DO NOTHING
