SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS store_ms, n.timestamp_bits, n.datacenter_bits,
    n.worker_bits, n.sequence_bits, n.sequence_first, n.epoch_ms, n.tick_ms, n.max_horizon_ms, n.floor_ms, n.version,
    l.worker, l.grant_id, l.holder, l.not_before_ms, l.valid_until_ms, l.acquired_ms, l.is_final
FROM (SELECT) AS c LEFT JOIN unalike_lease_namespace n ON n.namespace = $1
    LEFT JOIN unalike_lease l ON l.namespace = n.namespace AND l.worker = $2
