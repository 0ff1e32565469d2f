INSERT INTO unalike_lease_namespace (namespace, timestamp_bits, datacenter_bits, worker_bits, sequence_bits,
    sequence_first, epoch_ms, tick_ms, max_horizon_ms, floor_ms, version)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, GREATEST($10, s.floor_ms), $11 FROM unalike_store s WHERE s.part = 'leases'
ON CONFLICT (namespace) DO NOTHING
