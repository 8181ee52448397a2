-- What spiders count themselves (Spider.stats), summed up with every page that is settled.

ALTER TABLE jobs ADD COLUMN stats TEXT NOT NULL DEFAULT '{}';  -- JSON: name -> sum
